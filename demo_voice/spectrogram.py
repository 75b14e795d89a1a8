"""A picture of a sound: time to the right, pitch upwards, loud parts light."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.wav import SAMPLE_RATE

SIZE: Final = 1024
HOP: Final = 120
TOP_HZ: Final = 8_000
HEIGHT: Final = 256
RANGE_DB: Final = 60.0
_STOPS: Final = np.array(
    [[8, 8, 32], [70, 20, 110], [185, 50, 90], [245, 140, 40], [255, 245, 190]], dtype=np.float64
)
"""Dark to light, in equal steps of loudness."""


def picture(wave: NDArray[np.float32]) -> bytes:
    """A PNG file, a column for each 5 ms. ``wave`` [samples] has ``SIZE`` at least, at 24 kHz."""
    windows = np.lib.stride_tricks.sliding_window_view(wave.astype(np.float64), SIZE)[::HOP]
    power = np.abs(np.fft.rfft(windows * np.hanning(SIZE), axis=1)) ** 2
    bins = np.linspace(0, TOP_HZ * SIZE / SAMPLE_RATE, HEIGHT).round().astype(np.int64)
    decibels = 10 * np.log10(power[:, bins].T[::-1] + 1e-12)
    share = np.clip(1 + (decibels - decibels.max()) / RANGE_DB, 0, 1) * (len(_STOPS) - 1)
    low = np.minimum(share.astype(np.int64), len(_STOPS) - 2)
    part = (share - low)[..., None]
    return _png((_STOPS[low] * (1 - part) + _STOPS[low + 1] * part).astype(np.uint8))


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """[height, width, 3] as a file of 8-bit colours."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunks + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
