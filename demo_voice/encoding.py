"""The corpus as codes: latents, codebooks fitted to them, and each utterance's 32 x frames."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo_voice.autoencoder import train_autoencoder
from demo_voice.codec import centroids, latents, new_mimi
from demo_voice.paths import Workshop, replace_whole
from demo_voice.pcm import to_float
from demo_voice.progress import Progress, Tell
from demo_voice.quantiser import fit, nearest
from demo_voice.speech import read_waves
from shared.wav import CODEBOOKS

_TOGETHER: Final = 4
"""Utterances of one length that are encoded in one call, at most: more outgrow a core's cache."""


def fit_codebooks(workshop: Workshop, tell: Tell) -> None:
    """Encode the corpus, fit the codebooks, write both; nothing if they are there."""
    path = workshop.codec / "fitted.pt"
    if path.exists():
        return
    mimi = train_autoencoder(workshop, tell)
    waves = [wave for _, wave in read_waves(workshop.speech)]
    points = _all_latents(mimi, waves, tell)
    generator = torch.Generator().manual_seed(workshop.profile.seed)
    frames = torch.cat([each.T for each in points])
    chosen = torch.randperm(len(frames), generator=generator)[: workshop.profile.fit_frames]
    left = fit(mimi, frames[chosen], workshop.profile)
    tell(f"energy left before each codebook: {' '.join(f'{each:.3f}' for each in left)}")
    codes = [codes_of(mimi, each, workshop.profile.live_codebooks) for each in points]
    buffer = io.BytesIO()
    torch.save({"mimi": mimi.state_dict(), "codes": codes, "left": left}, buffer)
    replace_whole(path, buffer.getvalue())


def fitted_mimi(workshop: Workshop) -> Any:
    """The codec with its codebooks, its decoding half not yet trained on them."""
    mimi = new_mimi(workshop.profile)
    saved = torch.load(workshop.codec / "fitted.pt", weights_only=True)
    mimi.load_state_dict(saved["mimi"])
    return mimi


def encode_corpus(workshop: Workshop, tell: Tell) -> list[Tensor]:
    """int16 [32, frames] of every utterance, in the corpus's order."""
    fit_codebooks(workshop, tell)
    codes: list[Tensor] = torch.load(workshop.codec / "fitted.pt", weights_only=True)["codes"]
    return codes


def energy_left(workshop: Workshop) -> list[float]:
    """The share of the latents' energy before each live codebook from 1 on."""
    left: list[float] = torch.load(workshop.codec / "fitted.pt", weights_only=True)["left"]
    return left


def _all_latents(mimi: Any, waves: list[NDArray[np.int16]], tell: Tell) -> list[Tensor]:
    progress = Progress("encoding", len(waves), tell)
    found: list[Tensor | None] = [None] * len(waves)
    with torch.inference_mode():
        for group in _by_length(waves):
            rows = to_float(np.stack([waves[index] for index in group]))
            coded = latents(mimi, torch.from_numpy(rows)[:, None])
            for index, each in zip(group, coded, strict=True):
                found[index] = each.clone()
            progress.advance(len(group))
    return [each for each in found if each is not None]


def _by_length(waves: list[NDArray[np.int16]]) -> Iterator[list[int]]:
    order = sorted(range(len(waves)), key=lambda index: len(waves[index]))
    group: list[int] = []
    for index in order:
        if group and (len(group) == _TOGETHER or len(waves[group[0]]) != len(waves[index])):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


@torch.no_grad()
def codes_of(mimi: Any, points: Tensor, live: int) -> Tensor:
    """[codebook_dim, frames] latents -> int16 [32, frames], as moshi's quantiser gives."""
    centres = centroids(mimi)
    residual = points.T.clone()
    codes = torch.zeros(CODEBOOKS, len(residual), dtype=torch.int16)
    codes[0] = nearest(residual, centres[0])
    for index in range(1, live):
        chosen = nearest(residual, centres[index])
        codes[index] = chosen
        residual -= centres[index][chosen]
    return codes
