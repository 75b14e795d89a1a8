"""What was promised under a load, and whether it holds. The last phase is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.load.records import LoadReport, Phase
from benchmarks.queue.records import Tail
from benchmarks.records import Bound
from shared.errors import NOT_NOW

ALLOWED: Final = frozenset({200, *NOT_NOW})
GAP_STEPS: Final = 1.5
GOODPUT: Final = 0.9
HEALTH_S: Final = 0.1


def judge(report: LoadReport) -> tuple[Bound, ...]:
    """The bounds of a report. What needs two phases is judged when there are two."""
    last = report.phases[-1]
    found = [*_answers(last), _cadence(report, last)]
    if len(report.phases) > 1:
        found += _against(report, report.phases[0], last)
    if report.depth_bound is not None:
        found.append(
            Bound(
                "queue depth",
                f"at most {report.depth_bound}",
                f"{last.most_depth} at most",
                last.most_depth <= report.depth_bound,
            )
        )
    if last.health_s is not None:
        p99_s = last.health_s.p99
        promised = f"p99 under {1000 * HEALTH_S:.0f} ms"
        found.append(
            Bound("/health meanwhile", promised, f"{1000 * p99_s:.0f} ms", p99_s < HEALTH_S)
        )
    if report.balance is not None:
        wrong = "; ".join(report.balance) or "they balance"
        found.append(Bound("the books afterwards", "balance", wrong, not report.balance))
    return tuple(found)


def after_claim(phase: Phase) -> Tail | None:
    """Seconds from a call's claim to its first audio at the caller."""
    times = [
        call.first_audio_s - call.queue_wait_s
        for call in phase.good
        if call.first_audio_s is not None and call.queue_wait_s is not None
    ]
    return Tail.of(times) if times else None


def _answers(phase: Phase) -> Iterator[Bound]:
    yield Bound(
        "statuses",
        "only 200, 429 and 503",
        ", ".join(map(str, sorted(phase.statuses))),
        phase.statuses <= ALLOWED,
    )
    yield Bound(
        "let in and not spoken to the end",
        "none",
        f"{phase.spoilt} in mid-stream, {phase.overdue} past their timeout",
        phase.spoilt == 0 and phase.overdue == 0,
    )


def _cadence(report: LoadReport, phase: Phase) -> Bound:
    promised = f"p99 under {GAP_STEPS} steps of {1000 * report.step_s:.0f} ms"
    if phase.gaps_s is None:
        return Bound("gaps between two frames", promised, "not measured", None)
    steps = phase.gaps_s.p99 / report.step_s
    return Bound("gaps between two frames", promised, f"{steps:.2f} steps", steps < GAP_STEPS)


def _against(report: LoadReport, capacity: Phase, overload: Phase) -> Iterator[Bound]:
    share = overload.good_speech / capacity.good_speech if capacity.good_speech else 0.0
    yield Bound(
        f"goodput at {overload.load:g} x capacity",
        f"at least {GOODPUT:.0%} of that at capacity",
        f"{share:.0%}: {overload.good_speech:.1f} and {capacity.good_speech:.1f} s of speech a s",
        share >= GOODPUT,
    )
    ours, before = after_claim(overload), after_claim(capacity)
    if ours and before:
        later_s = ours.p99 - before.p99
        yield Bound(
            "first audio after the claim, of those let in",
            "p99 within one step of that at capacity",
            f"{1000 * ours.p99:.0f} ms, {1000 * before.p99:.0f} ms at capacity",
            later_s <= report.step_s,
        )
