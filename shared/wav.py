"""RIFF/WAVE files of 16-bit mono PCM, and the constants of the audio that the service makes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

SAMPLE_RATE: Final = 24_000
"""Samples a second, one channel."""
FRAME_SAMPLES: Final = 1920
"""Samples in one frame of Mimi codes (12.5 frames a second)."""
FRAME_MS: Final = 80
FRAME_BYTES: Final = FRAME_SAMPLES * 2
"""Bytes of one frame of s16le PCM."""
CODEBOOKS: Final = 32
"""Codes in one frame."""
HEADER_BYTES: Final = 44
UNKNOWN_SIZE: Final = 0xFFFF_FFFF
"""What a streamed file says for sizes that are not known when its header leaves."""

_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")


def wav_header(data_bytes: int, rate: int = SAMPLE_RATE) -> bytes:
    """The 44 bytes before ``data_bytes`` bytes of s16le mono samples at ``rate`` Hz.

    Raises ValueError for an odd, negative or too large size.
    """
    if data_bytes < 0 or data_bytes % 2 or data_bytes > UNKNOWN_SIZE - 36:
        raise ValueError(f"{data_bytes} bytes are no whole number of 16-bit samples in a WAV file")
    return _header(36 + data_bytes, data_bytes, rate)


def wav_file(pcm: bytes | Iterable[bytes], rate: int = SAMPLE_RATE) -> bytes:
    """A whole file around s16le samples, given in one piece or in several."""
    data = pcm if isinstance(pcm, bytes) else b"".join(pcm)
    return wav_header(len(data), rate) + data


def duration_ms(data_bytes: int, rate: int = SAMPLE_RATE) -> int:
    """Milliseconds of ``data_bytes`` bytes of s16le mono samples, rounded down."""
    return data_bytes // 2 * 1000 // rate


def _header(riff_bytes: int, data_bytes: int, rate: int) -> bytes:
    return _HEADER.pack(
        b"RIFF", riff_bytes, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", data_bytes
    )


STREAMING_HEADER: Final = _header(UNKNOWN_SIZE, UNKNOWN_SIZE, SAMPLE_RATE)
"""The header of a WAV body whose length is not known yet."""
