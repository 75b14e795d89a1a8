"""What was promised of the queue on two cores, and whether it holds."""

from __future__ import annotations

from typing import Final

from benchmarks.queue.records import QueueReport
from benchmarks.records import Bound
from shared.wav import FRAME_MS

PICKUP_P50_MS: Final = 10.0
PICKUP_P99_MS: Final = 50.0
ADMISSIONS: Final = 300.0
REFUSALS: Final = 1000.0
CANCEL_FRAMES: Final = 2.0
STREAMS: Final = 2000.0


def judge(report: QueueReport) -> tuple[Bound, ...]:
    """The bounds of a report, in the order of its tables."""
    pickup, door = report.pickup_ms, report.door
    own = pickup.p50 / FRAME_MS
    cancel, streams = report.cancel_frames.most - own, report.costs.streams_per_core
    return (
        Bound(
            "POST to claim, idle worker",
            f"p50 under {PICKUP_P50_MS:.0f} ms, p99 under {PICKUP_P99_MS:.0f} ms",
            f"{pickup.p50:.1f} and {pickup.p99:.1f} ms",
            pickup.p50 < PICKUP_P50_MS and pickup.p99 < PICKUP_P99_MS,
        ),
        Bound(
            "admissions per second of a gateway's processor",
            f"at least {ADMISSIONS:.0f}",
            f"{door.admissions_per_cpu_s:.0f}",
            door.admissions_per_cpu_s >= ADMISSIONS,
        ),
        Bound(
            "refusals per second of a gateway's processor",
            f"at least {REFUSALS:.0f}",
            f"{door.refusals_per_cpu_s:.0f}",
            door.refusals_per_cpu_s >= REFUSALS,
        ),
        Bound(
            "cancel to lane free",
            f"at most {CANCEL_FRAMES:.0f} frames",
            f"{cancel:.2f} frames at most, less the {own:.2f} of the next claim",
            cancel <= CANCEL_FRAMES,
        ),
        Bound(
            "streams whose frames fill one core of Redis",
            f"at least {STREAMS:.0f}",
            f"{streams:.0f}",
            streams >= STREAMS,
        ),
    )
