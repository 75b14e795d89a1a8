"""How wrong the published wait was, and what was refused that could have been met."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from benchmarks.load.model import Replayed
from benchmarks.load.records import Call, Estimate, Refused, Sample
from benchmarks.queue.records import Tail

AT_THE_DOOR: Final = ("queue_full", "deadline_unmeetable", "too_many_waiting")


def judge_estimate(
    calls: Sequence[Call], samples: Sequence[Sample], replayed: Sequence[Replayed]
) -> Estimate | None:
    """The last published estimate before each call that was claimed, against its true wait."""
    moments = [sample.at_s for sample in samples]
    errors, waits = [], []
    for call in calls:
        place = bisect_right(moments, call.at_s + call.late_s)
        if call.queue_wait_s is None or place == 0:
            continue
        errors.append(samples[place - 1].estimated_wait_s - call.queue_wait_s)
        waits.append(call.queue_wait_s)
    if not errors:
        return None
    model = [
        each.wait_s - each.call.queue_wait_s
        for each in replayed
        if each.call.queue_wait_s is not None
    ]
    return Estimate(
        calls=len(errors),
        mean_abs=statistics.fmean(map(abs, errors)),
        bias=statistics.fmean(errors),
        p90_abs=Tail.of([abs(error) for error in errors]).p90,
        mean_wait=statistics.fmean(waits),
        model_mean_abs=statistics.fmean(map(abs, model)),
        model_bias=statistics.fmean(model),
    )


def judge_refusals(replayed: Sequence[Replayed]) -> tuple[Refused, ...]:
    """By code, in the order of a gateway's checks."""
    found = []
    for code in AT_THE_DOOR:
        turned_away = [each for each in replayed if each.call.code == code]
        if turned_away:
            meetable = sum(each.in_time for each in turned_away)
            found.append(Refused(code, len(turned_away), meetable))
    return tuple(found)
