"""How much of a frame is spent outside operators, as torch's profiler sees it on a CPU.

Counted as inside: the time of every outermost operator, its own dispatch included. What is left of
the wall clock is Python, and the profiler's own cost, which makes the share an upper estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile

from benchmarks.records import Overhead
from benchmarks.timing import timed

HEAVIEST: Final = 8
ROUNDS: Final = 5


def overhead(frame: Callable[[], None], lanes: int, frames: int) -> Overhead:
    """``ROUNDS`` times, in turns: ``frames`` calls of ``frame``, and as many under the profiler.

    The shares are of the medians, so that a moment when the machine was elsewhere is none of ours.
    """

    def several() -> None:
        for _ in range(frames):
            frame()

    frame()
    rounds = [(timed(several) * 1e6, _profiled(several)) for _ in range(ROUNDS)]
    plain_us = median(plain for plain, _ in rounds)
    wall_us = median(each.wall_us for _, each in rounds)
    inside_us = median(each.inside_us for _, each in rounds)
    last = rounds[-1][1]
    return Overhead(
        lanes=lanes,
        outside_share=max(0.0, 1.0 - inside_us / wall_us),
        least_outside_share=max(0.0, 1.0 - inside_us / plain_us),
        kernels=last.kernels // frames,
        heaviest=tuple(
            (name, time_us / last.wall_us) for name, time_us in last.by_name.most_common(HEAVIEST)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Profiled:
    wall_us: float
    inside_us: float
    kernels: int
    by_name: Counter[str]
    """Time in each operator itself, microseconds."""


def _profiled(work: Callable[[], None]) -> _Profiled:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        wall_us = timed(work) * 1e6
    events: list[Any] = [each for each in profiled.events() or [] if each.name != "[memory]"]
    outermost = [each for each in events if each.cpu_parent is None]
    by_name: Counter[str] = Counter()
    for each in events:
        by_name[each.name] += each.self_cpu_time_total
    inside_us = sum(each.time_range.elapsed_us() for each in outermost)
    return _Profiled(wall_us, inside_us, len(outermost), by_name)
