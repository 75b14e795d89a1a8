"""What is checked, and what a check says."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import torch

from benchmarks.rig import Opened, open_model
from gpu_worker.backend import Backend, parse_backend
from shared.governance.artifacts import Artifact

HALF: Final = torch.bfloat16
WHOLE: Final = torch.float32


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an H100-class card has to reach; other cards are given their own on the command line."""

    rtf: float = 0.1
    streams: int = 64
    first_audio_s: float = 0.35
    prompted_over_plain: float = 1.15


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``passed`` is None where the device has no such thing; ``reason`` says why."""

    name: str
    bound: str
    passed: bool | None
    measured: dict[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Target:
    """An artifact on a device. ``lanes`` ascend; ``frames`` is how long each measurement is."""

    artifact: Artifact
    backend: Backend
    lanes: tuple[int, ...]
    chunk: int
    frames: int
    bounds: Bounds

    @property
    def device(self) -> torch.device:
        if self.backend.label == "cpu":
            return torch.device("cpu")
        return torch.device(self.backend.label, self.backend.ordinal)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def most(self) -> int:
        return self.lanes[-1]

    @functools.cached_property
    def opened(self) -> Opened:
        """The model as it is served on a GPU: bfloat16."""
        return open_model(self.artifact, self.device, HALF)


def target_on(
    device: str, artifact: Artifact, lanes: tuple[int, ...], chunk: int, frames: int, bounds: Bounds
) -> Target:
    """``device`` as in PSIONIC_CSM_BACKEND. Raises SpeechError for one without a name."""
    return Target(artifact, parse_backend(device), tuple(sorted(lanes)), chunk, frames, bounds)
