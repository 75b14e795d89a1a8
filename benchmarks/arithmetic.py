"""The arithmetic behind the tables, free of torch and of clocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from shared.wav import FRAME_MS

FRAME_S: Final = FRAME_MS / 1000
GB: Final = 1e9
ROWS_ONLY: Final = ("text_embeddings", "audio_embeddings", "decoder_embeddings")
"""Tables of which a frame reads a few rows: nothing beside the rest."""
EVERY_STEP: Final = ("decoder.", "projection.")
"""Read once per step of the depth decoder. Its heads are one matrix per step: read once in all."""

Shapes = Mapping[str, tuple[int, ...]]


def depth_steps_per_frame(codebooks: int) -> int:
    """Passes of the depth decoder for one frame: its first pass takes two positions."""
    return codebooks - 1


def weight_elements_per_frame(shapes: Shapes, codebooks: int) -> int:
    """Weights that one frame multiplies by, each as often as it is read; whatever the lanes.

    ``shapes`` by torchtune's names.
    """
    total = 0
    for name, shape in shapes.items():
        if name.startswith(ROWS_ONLY):
            continue
        times = depth_steps_per_frame(codebooks) if name.startswith(EVERY_STEP) else 1
        total += times * math.prod(shape)
    return total


def elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def frames_per_s(lanes: int, frame_s: float) -> float:
    """Of all lanes, when one step of all takes ``frame_s``."""
    return lanes / frame_s


def rtf(frame_s: float) -> float:
    """Seconds taken per second of audio, in each lane."""
    return frame_s / FRAME_S


def floor_s(weight_bytes: int, bytes_per_s: float) -> float:
    """The time to read a frame's weights once through."""
    return weight_bytes / bytes_per_s


def underruns(arrivals_s: list[float]) -> int:
    """Frames that came after their time, if playback begins with the first and never stops."""
    if not arrivals_s:
        return 0
    return sum(
        arrival - arrivals_s[0] > index * FRAME_S for index, arrival in enumerate(arrivals_s)
    )
