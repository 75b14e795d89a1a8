"""Debian's flite: text to 16 kHz speech and the end of every phone."""

from __future__ import annotations

import subprocess
import tempfile
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from demo_voice.pcm import to_float
from demo_voice.profiles import Style

RATE: Final = 16_000
PAUSE: Final = "pau"


@dataclass(frozen=True, slots=True)
class Phone:
    """``begin`` and ``end`` in seconds."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """``wave`` float32 in [-1, 1) at ``RATE``; the phones follow each other without gaps."""

    wave: NDArray[np.float32]
    phones: tuple[Phone, ...]


def speak(text: str, style: Style) -> Utterance:
    """Raises FileNotFoundError without flite, CalledProcessError when it fails."""
    voice = ("-voice", style.flite_voice, "--setf", f"duration_stretch={style.stretch}")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "speech.wav"
        output = subprocess.run(
            ["flite", *voice, "-psdur", "-t", text, str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        return Utterance(_read(path), parse_phones(output))


def parse_phones(output: str) -> tuple[Phone, ...]:
    """From ``name:end name:end ...``. Raises ValueError for something else or nothing."""
    phones: list[Phone] = []
    for part in output.split():
        name, _, end = part.partition(":")
        begin = phones[-1].end if phones else 0.0
        phones.append(Phone(name, begin, float(end)))
    if not phones:
        raise ValueError("flite named no phones")
    return tuple(phones)


def _read(path: Path) -> NDArray[np.float32]:
    with wave.open(str(path), "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise ValueError("flite wrote something else than 16 kHz mono of 16 bits")
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    return to_float(samples)
