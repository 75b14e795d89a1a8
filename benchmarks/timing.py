"""Taking turns: compared variants run one after another in every round, so that drift hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

Turn = Callable[[], Sequence[float]]
"""One turn of a variant: does its work a few times and returns the seconds of each."""


def take_turns(variants: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """``rounds`` turns of each variant, every second round in the opposite order."""
    samples: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for number in range(rounds):
        for name in order if number % 2 == 0 else reversed(order):
            samples[name] += variants[name]()
    return samples


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def warmed(work: Callable[[], object], times: int) -> Turn:
    """As ``repeated``, after one call that does not count: the turn before was another's."""

    def turn() -> list[float]:
        work()
        return [timed(work) for _ in range(times)]

    return turn


def repeated(work: Callable[[], object], times: int) -> Turn:
    """A turn that times ``work`` by itself, ``times`` times."""
    return lambda: [timed(work) for _ in range(times)]
