"""How much of a frame is spent outside operators, as torch's profiler sees it on a CPU.

Inside is the time of every outermost operator, its own dispatch included; outside is what lies
between the end of one and the beginning of the next, on the way from frame to frame too. Both are
of the same frames: a frame without a profiler, held against one with it, says more about what else
the machine did than about a few per cent. All frames run the same operators, so each one and each
gap is taken as the median of its own times in all of them.

Recording makes gaps longer, and operators that call others: the shares are those of large models,
whose operators take far longer than to be recorded.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.records import Overhead
from benchmarks.timing import timed

HEAVIEST: Final = 8
CALLS: Final = 100
ROUNDS: Final = 50


@dataclass(frozen=True, slots=True)
class Operator:
    """A call of one, in microseconds of the profiler's clock."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Of one frame: microseconds inside operators, between them, and how many there are."""

    inside_us: float
    outside_us: float
    operators: int


def overhead(frame: Callable[[], None], lanes: int, frames: int) -> Overhead:
    """``frames`` calls of ``frame`` under the profiler, after one that does not count.

    RuntimeError if they don't run the same operators.
    """
    frame()
    with _profiler() as profiled:
        for _ in range(frames):
            frame()
    calls = _calls(profiled)
    found = shares_of(outermost(calls), frames)
    spent_us = found.inside_us + found.outside_us
    least_us = max(0.0, found.outside_us - found.operators * recording_us())
    by_name = own_times(calls)
    whole, heaviest = sum(by_name.values()), sorted(by_name, key=by_name.__getitem__, reverse=True)
    return Overhead(
        lanes=lanes,
        outside_share=found.outside_us / spent_us,
        least_outside_share=least_us / spent_us,
        kernels=found.operators,
        heaviest=tuple((name, by_name[name] / whole) for name in heaviest[:HEAVIEST]),
    )


def _calls(profiled: Any) -> list[Operator]:
    """Every operator in the order of its beginning, before those that it called itself."""
    calls = [
        Operator(each.name(), each.start_ns() / 1000, each.end_ns() / 1000)
        for each in profiled.profiler.kineto_results.events()
        if "::" in each.name()
    ]
    return sorted(calls, key=lambda each: (each.start_us, -each.end_us))


def outermost(calls: Sequence[Operator]) -> list[Operator]:
    """Those that no other operator called."""
    found: list[Operator] = []
    for each in calls:
        if not found or each.start_us >= found[-1].end_us:
            found.append(each)
    return found


def own_times(calls: Sequence[Operator]) -> dict[str, float]:
    """Microseconds in each operator itself, without those that it called."""
    times: dict[str, float] = defaultdict(float)
    callers: list[Operator] = []
    for each in calls:
        while callers and each.start_us >= callers[-1].end_us:
            callers.pop()
        times[each.name] += each.end_us - each.start_us
        if callers:
            times[callers[-1].name] -= each.end_us - each.start_us
        callers.append(each)
    return times


def shares_of(operators: Sequence[Operator], frames: int) -> Shares:
    """The median frame of ``frames`` equal ones. RuntimeError if they are not."""
    count, rest = divmod(len(operators), frames)
    names = [each.name for each in operators]
    if rest or names != names[:count] * frames:
        raise RuntimeError("the frames that were profiled are not alike")
    inside = [each.end_us - each.start_us for each in operators]
    gaps = [later.start_us - earlier.end_us for earlier, later in itertools.pairwise(operators)]
    return Shares(
        sum(median(inside[place::count]) for place in range(count)),
        sum(median(gaps[place::count]) for place in range(count)),
        count,
    )


def recording_us() -> float:
    """What the profiler adds to a small operator, within what it reports and beside it.

    Of the fastest of many short rounds: on a busy machine the others are the neighbours'.
    """
    number = torch.zeros(1)

    def several() -> None:
        for _ in range(CALLS):
            number.add_(1.0)

    plain = min(timed(several) for _ in range(ROUNDS))
    with _profiler():
        recorded = min(timed(several) for _ in range(ROUNDS))
    return max(0.0, recorded - plain) / CALLS * 1e6


def _profiler() -> Any:
    return profile(activities=[ProfilerActivity.CPU])
