"""The codec's first training, without a quantiser: noise on the latents stands in for it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo_voice.codec import latents, new_mimi, sound
from demo_voice.loop import averaged, is_done, train
from demo_voice.losses import SoundLoss
from demo_voice.paths import Workshop
from demo_voice.pcm import to_float
from demo_voice.progress import Tell
from demo_voice.speech import read_waves
from shared.wav import FRAME_SAMPLES

CROP: Final = 12
"""Frames of one sample."""
NOISE: Final = 0.3
_PARTS: Final = (
    "encoder",
    "encoder_transformer",
    "downsample",
    "upsample",
    "decoder_transformer",
    "decoder",
    "quantizer.rvq_rest.input_proj",
    "quantizer.rvq_rest.output_proj",
)


class Crops:
    """Stretches of whole frames out of the corpus, from anywhere in it."""

    def __init__(self, waves: list[NDArray[np.int16]], frames: int) -> None:
        self._waves = [wave for wave in waves if len(wave) >= frames * FRAME_SAMPLES]
        self._frames = frames
        if not self._waves:
            raise ValueError(f"no utterance has {frames} frames")

    def draw(self, random: np.random.Generator, count: int) -> Tensor:
        """[count, 1, samples], in [-1, 1]."""
        rows = []
        for index in random.integers(len(self._waves), size=count):
            wave = self._waves[index]
            begin = random.integers(len(wave) // FRAME_SAMPLES - self._frames + 1) * FRAME_SAMPLES
            rows.append(np.asarray(wave[begin : begin + self._frames * FRAME_SAMPLES]))
        return torch.from_numpy(to_float(np.stack(rows)))[:, None]


class Autoencoder:
    """``loop.Task`` over encoder and decoder."""

    def __init__(self, mimi: Any, crops: Crops, batch: int) -> None:
        self._mimi, self._crops, self._batch = mimi, crops, batch
        self._loss = SoundLoss()

    def weights(self) -> dict[str, Tensor]:
        named = self._mimi.named_parameters()
        return {name: each for name, each in named if name.startswith(_PARTS)}

    def loss(self, step: int, random: np.random.Generator) -> tuple[Tensor, dict[str, float]]:
        wave = self._crops.draw(random, self._batch)
        with torch.autocast("cpu", torch.bfloat16):
            coded = latents(self._mimi, wave).float()
            noisy = coded + torch.randn_like(coded) * NOISE
            made = sound(self._mimi, self._mimi.quantizer.rvq_rest.output_proj(noisy)).float()
        likeness = self._loss(made[:, 0], wave[:, 0])
        # Without it the latents would grow until the noise is nothing.
        size = coded.square().mean()
        loss = likeness + 0.1 * torch.relu(size - 1)
        return loss, {"loss": float(likeness.detach()), "size": float(size.detach())}


def train_autoencoder(workshop: Workshop, tell: Tell) -> Any:
    """The trained codec; at once if it is there."""
    profile, path = workshop.profile, workshop.codec / "autoencoder.pt"
    torch.manual_seed(profile.seed)
    mimi = new_mimi(profile).train()
    if is_done(path, profile.autoencoder):
        mimi.load_state_dict(averaged(path), strict=False)
        return mimi.eval()
    waves = [wave for _, wave in read_waves(workshop.speech)]
    task = Autoencoder(mimi, Crops(waves, CROP), profile.autoencoder.batch)
    train("autoencoder", task, profile.autoencoder, path, profile.seed, tell, decay=1e-3)
    return mimi.eval()
