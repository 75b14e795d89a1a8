"""The codec: its codebooks as moshi reads them, its crops, its losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from demo_voice.autoencoder import Crops
from demo_voice.codec import centroids, latents, new_mimi
from demo_voice.encoding import codes_of
from demo_voice.losses import SoundLoss
from demo_voice.profiles import SMOKE
from demo_voice.quantiser import fit, k_means
from shared.wav import FRAME_SAMPLES


def test_our_codes_are_moshis() -> None:
    """The corpus is encoded as moshi's own ``encode`` would: live codebooks, then zeros."""
    torch.manual_seed(0)
    mimi = new_mimi(SMOKE).eval()
    wave = torch.randn(1, 1, 40 * FRAME_SAMPLES) * 0.1
    with torch.no_grad():
        points = latents(mimi, wave)[0]
        left = fit(mimi, points.T.contiguous(), SMOKE)
        codes = codes_of(mimi, points, SMOKE.live_codebooks)
        moshis = mimi.encode(wave)[0]

    assert torch.equal(codes.to(torch.int64), moshis)
    assert not codes[SMOKE.live_codebooks :].any()
    assert left == sorted(left, reverse=True)


def test_no_frame_begins_with_the_code_of_the_end() -> None:
    """Code 0 of the first codebook is far from every latent: zeros only ever mean the end."""
    torch.manual_seed(1)
    mimi = new_mimi(SMOKE).eval()
    points = torch.randn(500, SMOKE.codebook_dim)

    fit(mimi, points, SMOKE)

    assert (codes_of(mimi, points.T, SMOKE.live_codebooks)[0] > 0).all()
    assert float(centroids(mimi)[0, 0].min()) > 10


def test_drawing_a_silent_codebook_changes_nothing() -> None:
    """Whatever the model draws of a codebook that says nothing, the sound stays."""
    torch.manual_seed(2)
    mimi = new_mimi(SMOKE).eval()
    fit(mimi, torch.randn(500, SMOKE.codebook_dim), SMOKE)
    codes = torch.ones(1, 32, 3, dtype=torch.int64)
    other = codes.clone()
    other[:, SMOKE.live_codebooks :] = 7

    with torch.no_grad():
        assert torch.equal(mimi.quantizer.decode(codes), mimi.quantizer.decode(other))


def test_k_means_finds_the_clusters() -> None:
    """Points around four places get those four places, and no centroid is left without points."""
    generator = torch.Generator().manual_seed(3)
    places = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    points = places.repeat(200, 1) + 0.1 * torch.randn(800, 2, generator=generator)

    found = k_means(points, 4, seed=1)

    distances = torch.cdist(places, found).min(dim=1).values
    assert float(distances.max()) < 0.2


def test_crops_are_whole_frames() -> None:
    """A crop begins where a frame begins; utterances that are too short are left out."""
    frames = np.repeat(np.arange(8, dtype=np.int16), FRAME_SAMPLES)
    crops = Crops([frames, frames[: 2 * FRAME_SAMPLES]], 3)

    drawn = crops.draw(np.random.default_rng(0), 16)

    assert drawn.shape == (16, 1, 3 * FRAME_SAMPLES)
    by_frame = drawn.view(16, 3, FRAME_SAMPLES) * 32767
    assert torch.equal(by_frame, by_frame[..., :1].expand_as(by_frame))
    with pytest.raises(ValueError, match="no utterance"):
        Crops([frames], 9)


def test_the_loss_falls_with_likeness() -> None:
    """Nothing is lost between equal sounds, little between near ones, much between others."""
    loss = SoundLoss()
    generator = torch.Generator().manual_seed(4)
    wave = torch.randn(2, 6 * FRAME_SAMPLES, generator=generator) * 0.1
    other = torch.randn(2, 6 * FRAME_SAMPLES, generator=generator) * 0.1

    assert float(loss(wave, wave)) == pytest.approx(0, abs=1e-6)
    assert 0 < float(loss(wave + 0.01 * other, wave)) < float(loss(other, wave))
