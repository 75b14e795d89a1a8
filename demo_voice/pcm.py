"""16-bit samples as numbers in [-1, 1] and back, as ``gpu_worker.codec.pcm16`` scales them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FULL_SCALE = 32_767


def to_float(samples: NDArray[Any]) -> NDArray[np.float32]:
    wave: NDArray[np.float32] = np.divide(samples, FULL_SCALE, dtype=np.float32)
    return wave


def to_pcm16(wave: NDArray[Any]) -> NDArray[np.int16]:
    samples: NDArray[np.int16] = np.rint(np.clip(wave, -1, 1) * FULL_SCALE).astype(np.int16)
    return samples
