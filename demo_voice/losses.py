"""How near two sounds are, where sameness is possible: our frames leave nothing to chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shared.wav import SAMPLE_RATE

PRE_EMPHASIS = 0.85
_TOP_HZ = 8_200.0


@dataclass(frozen=True, slots=True)
class _Resolution:
    size: int
    hop: int
    window: Tensor
    filters: Tensor


class SoundLoss:
    """Log-mel distance at two resolutions, and of the waveform itself, in L1 and in energy."""

    def __init__(self) -> None:
        self._resolutions = [_resolution(2048, 480, 80), _resolution(512, 120, 40)]

    def __call__(self, made: Tensor, meant: Tensor) -> Tensor:
        """[rows, samples] each -> a number."""
        spectral = sum(_mel_distance(made, meant, each) for each in self._resolutions) / 2
        made, meant = _emphasise(made), _emphasise(meant)
        distance = (made - meant).abs().mean() / 0.05
        energy = (made - meant).square().mean() / meant.square().mean().clamp(min=1e-6)
        return 0.5 * spectral + 0.5 * distance + 0.5 * energy


def _emphasise(wave: Tensor) -> Tensor:
    return wave[..., 1:] - PRE_EMPHASIS * wave[..., :-1]


def _mel_distance(made: Tensor, meant: Tensor, resolution: _Resolution) -> Tensor:
    return (_log_mel(made, resolution) - _log_mel(meant, resolution)).abs().mean()


def _log_mel(wave: Tensor, resolution: _Resolution) -> Tensor:
    spectrum = torch.stft(
        wave, resolution.size, resolution.hop, window=resolution.window, return_complex=True
    )
    power = spectrum.real.square() + spectrum.imag.square() + 1e-9
    return torch.log(resolution.filters @ power + 1e-5)


def _resolution(size: int, hop: int, bands: int) -> _Resolution:
    bins = torch.arange(size // 2 + 1) * SAMPLE_RATE / size
    mels = torch.linspace(0, 1127 * math.log1p(_TOP_HZ / 700), bands + 2)
    edges = 700 * torch.expm1(mels / 1127)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    slopes = torch.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    filters = slopes.clamp(min=0)
    filters = filters / (filters.sum(dim=1, keepdim=True) + 1e-9)
    return _Resolution(size, hop, torch.hann_window(size), filters)
