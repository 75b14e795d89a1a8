"""The codec's second training: its decoding half on the codes; encoder and codebooks stay.

The first codebook, a rough name of the frame, is heard too from here on: it and the next are two
looks at one latent. How many of the others count is random, and there is a little noise, so that a
code or two that the CSM gets wrong is not heard.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo_voice.codec import centroids, sound
from demo_voice.encoding import encode_corpus, fitted_mimi
from demo_voice.loop import averaged, is_done, train
from demo_voice.losses import SoundLoss
from demo_voice.paths import Workshop
from demo_voice.pcm import to_float
from demo_voice.profiles import Profile
from demo_voice.progress import Tell
from demo_voice.speech import read_waves
from shared.wav import FRAME_SAMPLES

CROP: Final = 14
NOISE: Final = 0.15
_PARTS: Final = (
    "upsample",
    "decoder_transformer",
    "decoder",
    "quantizer.rvq_first.output_proj",
    "quantizer.rvq_rest.output_proj",
)


class Decoder:
    """``loop.Task`` over the decoding half."""

    def __init__(
        self,
        mimi: Any,
        pairs: list[tuple[Tensor, NDArray[np.int16]]],
        profile: Profile,
    ) -> None:
        self._mimi, self._profile, self._loss = mimi, profile, SoundLoss()
        self._pairs = [pair for pair in pairs if pair[0].shape[1] >= CROP]
        self._centres = centroids(mimi)

    def weights(self) -> dict[str, Tensor]:
        named = self._mimi.named_parameters()
        return {name: each for name, each in named if name.startswith(_PARTS)}

    def loss(self, step: int, random: np.random.Generator) -> tuple[Tensor, dict[str, float]]:
        codes, wave = self._draw(random)
        named = self._centres[0][codes[:, 0]].transpose(1, 2)
        quantised, quantizer = self._quantised(codes, random), self._mimi.quantizer
        with torch.autocast("cpu", torch.bfloat16):
            projected = quantizer.rvq_first.output_proj(named)
            projected = projected + quantizer.rvq_rest.output_proj(quantised)
            made = sound(self._mimi, projected).float()
        # The first frame has no past here, as it has none at an utterance's begin alone.
        loss = self._loss(made[:, 0, FRAME_SAMPLES:], wave[:, FRAME_SAMPLES:])
        return loss, {"loss": float(loss.detach())}

    def _draw(self, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        codes, waves = [], []
        for index in random.integers(len(self._pairs), size=self._profile.decoder.batch):
            code, wave = self._pairs[index]
            begin = int(random.integers(code.shape[1] - CROP + 1))
            codes.append(code[:, begin : begin + CROP].long())
            cut = wave[begin * FRAME_SAMPLES : (begin + CROP) * FRAME_SAMPLES]
            waves.append(to_float(cut))
        return torch.stack(codes), torch.from_numpy(np.stack(waves))

    def _quantised(self, codes: Tensor, random: np.random.Generator) -> Tensor:
        """[rows, 32, frames] -> [rows, codebook_dim, frames]: the acoustic codebooks' sum."""
        live = self._profile.live_codebooks
        counts = torch.from_numpy(random.integers((live + 1) // 2, live, size=len(codes)))
        rows = []
        for index in range(1, live):
            counts_here = (counts >= index)[:, None, None]
            rows.append(self._centres[index][codes[:, index]] * counts_here)
        total = torch.stack(rows).sum(dim=0).transpose(1, 2)
        return total + NOISE * torch.randn_like(total)


def train_decoder(workshop: Workshop, tell: Tell) -> Any:
    """The finished codec; at once if it is there."""
    profile, path = workshop.profile, workshop.codec / "decoder.pt"
    mimi = fitted_mimi(workshop)
    if is_done(path, profile.decoder):
        mimi.load_state_dict(averaged(path), strict=False)
        return mimi.eval()
    codes = encode_corpus(workshop, tell)
    waves = [wave for _, wave in read_waves(workshop.speech)]
    task = Decoder(mimi, list(zip(codes, waves, strict=True)), profile)
    train("decoder", task, profile.decoder, path, profile.seed + 1, tell, decay=1e-3)
    return mimi.eval()
