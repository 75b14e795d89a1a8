"""A report of a load as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.load.bounds import after_claim
from benchmarks.load.records import LoadReport, Phase
from benchmarks.queue.records import Tail
from benchmarks.queue.show import host_rows, tail_row
from benchmarks.show import Table, bounds_table

TAIL = ("p50", "p90", "p99", "most", "samples")


def tables(report: LoadReport) -> Iterator[Table]:
    """All that a report holds, in reading order."""
    yield Table("Machine and load", ("what", "value"), (*_facts(report),))
    yield Table(
        "Phases",
        ("phase", "calls/s sent", "good calls/s", "speech s/s", "deepest", "outcomes"),
        tuple(map(_phase, report.phases)),
    )
    yield Table(
        "Times of those who were served, seconds",
        ("what", *TAIL),
        tuple(row for phase in report.phases for row in _times(phase)),
    )
    yield Table(
        "Processes",
        ("phase", "process", "of a core", "ready and without one"),
        tuple(
            (phase.name, each.name, f"{each.busy:.1%}", f"{each.starved:.1%}")
            for phase in report.phases
            for each in phase.processes
        ),
    )
    yield Table(
        "The published wait against the true one, seconds",
        ("phase", "calls", "mean wait", "mean error", "bias", "p90 of error", "replay's error"),
        tuple(row for phase in report.phases for row in _estimate(phase)),
    )
    yield Table(
        "Refused at the door",
        ("phase", "code", "calls", "would have been done in time", "share"),
        tuple(row for phase in report.phases for row in _refused(phase)),
    )
    yield bounds_table(report.bounds)


def _facts(report: LoadReport) -> Iterator[tuple[str, str]]:
    yield from host_rows(report.host, report.seconds)
    yield "gateway", report.url
    yield "lanes", f"{report.lanes}, {1000 * report.step_s:.0f} ms a frame"
    yield "lengths, seconds:weight", report.mix
    yield "timeouts", ", ".join(f"{each:g} s" for each in report.timeouts_s)


def _phase(phase: Phase) -> tuple[str, ...]:
    outcomes = ", ".join(f"{name} {count}" for name, count in phase.outcomes.most_common())
    return (
        f"{phase.name}, {phase.load:g} x",
        f"{len(phase.calls) / phase.seconds:.1f}",
        f"{phase.goodput:.1f}",
        f"{phase.good_speech:.1f}",
        str(phase.most_depth),
        outcomes,
    )


def _times(phase: Phase) -> Iterator[tuple[str, ...]]:
    measured = {
        "first audio": [call.first_audio_s for call in phase.good],
        "total": [call.total_s for call in phase.good],
        "wait in the queue": [call.queue_wait_s for call in phase.good],
    }
    for name, samples in measured.items():
        known = [sample for sample in samples if sample is not None]
        if known:
            yield tail_row(f"{phase.name}: {name}", Tail.of(known), 3)
    rest = {
        "claim to first audio": after_claim(phase),
        "gap between two frames": phase.gaps_s,
        "/health": phase.health_s,
        "sent late by": Tail.of([call.late_s for call in phase.calls]) if phase.calls else None,
    }
    for name, tail in rest.items():
        if tail is not None:
            yield tail_row(f"{phase.name}: {name}", tail, 3)


def _estimate(phase: Phase) -> Iterator[tuple[str, ...]]:
    if (found := phase.estimate) is not None:
        yield (
            phase.name,
            str(found.calls),
            f"{found.mean_wait:.2f}",
            f"{found.mean_abs:.2f}",
            f"{found.bias:+.2f}",
            f"{found.p90_abs:.2f}",
            f"{found.model_mean_abs:.2f}, bias {found.model_bias:+.2f}",
        )


def _refused(phase: Phase) -> Iterator[tuple[str, ...]]:
    for each in phase.refused:
        share = f"{each.meetable / each.count:.0%}"
        yield (phase.name, each.code, str(each.count), str(each.meetable), share)
