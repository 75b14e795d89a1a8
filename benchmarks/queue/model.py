"""The model that every server serves here: frames out of nothing, as one WAV file."""

from __future__ import annotations

from typing import Final

from benchmarks.paced import codes_of, pcm_of
from shared.wav import wav_file

FRAMES: Final = 25


def speech(seed: int, frames: int) -> bytes:
    """What the paced engine makes of a request, all at once. Its codes are made and dropped."""
    for index in range(frames):
        codes_of(seed, index)
    return wav_file(b"".join(pcm_of(seed, index) for index in range(frames)))
