"""How much of a frame is spent outside operators, as torch's profiler sees it on a CPU.

Counted as inside: the time of every outermost operator, its own dispatch included. What is left of
the wall clock is Python, and the profiler's own cost, which makes the share an upper estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile

from benchmarks.records import Overhead
from benchmarks.timing import timed

HEAVIEST: Final = 8


def overhead(frame: Callable[[], None], lanes: int, frames: int) -> Overhead:
    """Profile ``frames`` calls of ``frame``, after as many without a profiler."""

    def several() -> None:
        for _ in range(frames):
            frame()

    frame()
    plain_us = timed(several) * 1e6
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        wall_us = timed(several) * 1e6
    events: list[Any] = [each for each in profiled.events() or [] if each.name != "[memory]"]
    outermost = [each for each in events if each.cpu_parent is None]
    inside_us = sum(each.time_range.elapsed_us() for each in outermost)
    by_name: Counter[str] = Counter()
    for each in events:
        by_name[each.name] += each.self_cpu_time_total
    return Overhead(
        lanes=lanes,
        outside_share=max(0.0, 1.0 - inside_us / wall_us),
        least_outside_share=max(0.0, 1.0 - inside_us / plain_us),
        kernels=len(outermost) // frames,
        heaviest=tuple(
            (name, time_us / wall_us) for name, time_us in by_name.most_common(HEAVIEST)
        ),
    )
