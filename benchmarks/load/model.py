"""First in, first out over equal lanes: when a call would have been done, had it been let in.

Each call holds one lane for its own true time, in the order of arrival. The service takes turns
between callers' keys and waits for frame boundaries; with one key and frames of 80 ms that differs
little, and by how much is measured on those who were let in.
"""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.load.records import Call


@dataclass(frozen=True, slots=True)
class Replayed:
    """A call and the model's wait for it: as it was let in, or had it been let in alone."""

    call: Call
    wait_s: float
    service_s: float

    @property
    def in_time(self) -> bool:
        return self.wait_s + self.service_s <= self.call.timeout_s


def replay(calls: Sequence[Call], lanes: int) -> list[Replayed]:
    """Every call against those before it that were let in. Refused ones are tried one at a time.

    Those who were let in and did not get to their end count with the time that they held a lane,
    where it is known, else with that of their length.
    """
    usual = _usual_service_s(calls)
    free_at = [0.0] * lanes
    replayed = []
    for call in sorted(calls, key=lambda each: each.at_s + each.late_s):
        at_s = call.at_s + call.late_s
        service_s = usual(call.frames) if call.service_s is None else call.service_s
        start_s = max(at_s, free_at[0])
        if call.status == 200:
            heapq.heapreplace(free_at, start_s + service_s)
        replayed.append(Replayed(call, start_s - at_s, service_s))
    return replayed


def _usual_service_s(calls: Sequence[Call]) -> Callable[[int], float]:
    """The median true time of calls of so many frames; of another length, by proportion."""
    known: dict[int, list[float]] = defaultdict(list)
    for call in calls:
        if call.is_good and call.service_s is not None:
            known[call.frames].append(call.service_s)
    medians = {frames: statistics.median(times) for frames, times in known.items()}
    paces = [median / frames for frames, median in medians.items()]
    pace_s = statistics.median(paces) if paces else 0.0
    return lambda frames: medians.get(frames, frames * pace_s)
