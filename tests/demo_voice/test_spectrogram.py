"""The picture of a sound is a picture, with its tones where they belong."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from demo_voice.spectrogram import HEIGHT, HOP, SIZE, TOP_HZ, picture
from shared.wav import SAMPLE_RATE


def test_a_tone_is_one_light_line() -> None:
    """Of a width that follows the time, brightest in the row of its pitch; other rows are dark."""
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    file = picture(np.sin(2 * np.pi * 2_000 * time).astype(np.float32))

    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", file[16:24])
    assert (width, height) == ((SAMPLE_RATE - SIZE) // HOP + 1, HEIGHT)
    begin = file.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(file[begin:-16]), np.uint8).reshape(height, -1)
    light = rows[:, 1:].astype(int).sum(axis=1)
    place = HEIGHT - 1 - int(light.argmax())
    assert abs(place / (HEIGHT - 1) * TOP_HZ - 2_000) < 60
    assert light[0] < light.max() / 4
