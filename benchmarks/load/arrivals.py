"""Who comes when, and for how much. From a seed, so that two runs send the same."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from shared.wav import FRAME_MS

WORDS: Final = "so it goes on and on as long as it has to "
CHARACTERS_PER_S: Final = 12
"""About how fast people speak; a gateway refuses what is over twice as fast."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Lengths of speech in frames, each as likely as its weight says."""

    frames: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """``0.8:3,2.4:5`` are seconds and their weights. Raises ValueError."""
        parts = [part.strip() for part in text.split(",")]
        if not all(re.fullmatch(r"[0-9.]+:[0-9.]+", part) for part in parts):
            raise ValueError("a mix of lengths is seconds:weight,..., as 0.8:3,2.4:5")
        pairs = [tuple(map(float, part.split(":"))) for part in parts]
        frames = tuple(round(seconds * 1000 / FRAME_MS) for seconds, _ in pairs)
        weights = tuple(weight for _, weight in pairs)
        if min(frames) < 1 or max(frames) > 250 or min(weights) <= 0:
            raise ValueError("a length is 0.08 to 20 s and its weight above 0")
        return cls(frames, weights)

    @property
    def mean_frames(self) -> float:
        pairs = zip(self.frames, self.weights, strict=True)
        return sum(frames * weight for frames, weight in pairs) / sum(self.weights)


@dataclass(frozen=True, slots=True)
class Arrival:
    """``at_s`` counts from the beginning of its phase."""

    at_s: float
    frames: int
    timeout_s: float

    @property
    def text(self) -> str:
        length = max(1, round(CHARACTERS_PER_S * self.frames * FRAME_MS / 1000))
        return (WORDS * (length // len(WORDS) + 1))[:length].strip()


def schedule(
    rate: float, seconds: float, mix: Mix, timeouts_s: Sequence[float], seed: int
) -> tuple[Arrival, ...]:
    """Poisson arrivals at ``rate`` a second; every gap and length from the seed.

    A call's timeout is one of those given, but never less than one and a half times its length.
    """
    chance = random.Random(seed)
    arrivals: list[Arrival] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        frames = chance.choices(mix.frames, mix.weights)[0]
        timeout_s = max(chance.choice(timeouts_s), 1.5 * frames * FRAME_MS / 1000)
        arrivals.append(Arrival(at_s, frames, timeout_s))
        at_s += chance.expovariate(rate)
    return tuple(arrivals)
