"""What was promised of a machine like the one the bounds were set on, and whether it holds.

Two cores, bfloat16, CSM-1B's size. Another size or precision is measured all the same and not
judged: ``met`` is None then.
"""

from __future__ import annotations

from typing import Final

from benchmarks.records import Bound, Lanes, Report

ALONE_OVER_ORACLE: Final = 1.0
ALONE_AIM: Final = 1.3
EIGHT_OVER_ORACLE: Final = 6.0
PROMPTED_OVER_PLAIN: Final = 1.15
PEAK_OVER_KEPT: Final = 1.25
READS_PER_BYTE: Final = 1.1
"""Once, and the little that is read twice or belongs to no weight."""
OUTSIDE_KERNELS: Final = 0.05


def judge(report: Report) -> tuple[Bound, ...]:
    """The bounds of a report, in the order of its tables."""
    counts = report.subject.size == "full" and report.subject.dtype == "bfloat16"

    def bound(name: str, promised: str, found: str, met: bool | None) -> Bound:
        return Bound(name, promised, found, met if counts else None)

    audio, join, load = report.first_audio, report.join, report.loading
    share = report.overhead.outside_share
    return (
        bound(
            "1 lane against transformers at batch 1",
            f"at least {ALONE_OVER_ORACLE:.1f} x, aim {ALONE_AIM:.1f} x",
            *_against_oracle(report, 1, ALONE_OVER_ORACLE),
        ),
        bound(
            "8 lanes against transformers at batch 1",
            f"at least {EIGHT_OVER_ORACLE:.1f} x",
            *_against_oracle(report, 8, EIGHT_OVER_ORACLE),
        ),
        bound(
            "first audio with the voice's prompt cached",
            f"at most {PROMPTED_OVER_PLAIN:.2f} x that without a prompt",
            f"{audio.prompted_over_plain:.2f} x",
            audio.prompted_over_plain <= PROMPTED_OVER_PLAIN,
        ),
        bound(
            "load: peak memory",
            f"at most {PEAK_OVER_KEPT:.2f} x the bytes kept",
            f"{load.peak_over_kept:.2f} x",
            load.peak_over_kept <= PEAK_OVER_KEPT,
        ),
        bound(
            "load: weights read once",
            f"at most {READS_PER_BYTE:.1f} reads of a byte",
            f"{load.reads_per_byte:.2f}",
            load.reads_per_byte <= READS_PER_BYTE,
        ),
        bound(
            f"join: a prompt of {join.positions} positions",
            "never more than one chunk between two frames",
            f"{join.joining_frames} frames spoken during {join.chunks} chunks",
            join.joining_frames >= join.chunks,
        ),
        bound(
            f"overhead: share of a step of {report.overhead.lanes} lanes outside kernels",
            f"under {OUTSIDE_KERNELS:.0%}",
            f"{report.overhead.least_outside_share:.1%} to {share:.1%}",
            share < OUTSIDE_KERNELS,
        ),
    )


def _against_oracle(report: Report, lanes: int, least: float) -> tuple[str, bool | None]:
    ours: Lanes | None = next((each for each in report.lanes if each.lanes == lanes), None)
    ratio = report.over_oracle(ours) if ours else None
    if ratio is None:
        return "not measured", None
    return f"{ratio:.2f} x", ratio >= least
