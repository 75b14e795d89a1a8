"""What a worker owes Redis: leases to renew, frames to post, ends to state.

Each step may raise because Redis is away. Nothing is struck off before Redis has it, so the same
step in a later turn goes on where this one broke off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from gpu_worker.evidence import Origin, Outcome
from gpu_worker.for_show import for_show
from gpu_worker.leases import BY_CALLER, OVERDUE, Lease
from scheduler.queue import EndOutcome, LanePost, Verdict, WorkQueue

if TYPE_CHECKING:
    from gpu_worker.metrics import WorkerMetrics
    from scheduler.carrier import Carrier
    from shared.tracing import Spans

POSTS_PER_CALL: Final = 64
"""Frames in one round trip, about 250 kB. Only after an outage are there more."""

log = structlog.get_logger()


class Books:
    """The leases of one worker. ``stop`` frees the lane of an execution, if it has one."""

    def __init__(
        self,
        queue: WorkQueue,
        carrier: Carrier,
        origin: Origin,
        stop: Callable[[str], None],
        metrics: WorkerMetrics,
        spans: Spans,
    ) -> None:
        self._queue = queue
        self._carrier = carrier
        self._origin = origin
        self._stop = stop
        self._metrics = metrics
        self._spans = spans
        self._leases: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def enter(self, lease: Lease) -> None:
        self._leases[lease.execution] = lease

    def find(self, execution: str) -> Lease | None:
        """The lease of an execution, None once it has ended here or was lost."""
        return self._leases.get(execution)

    def renew(self) -> None:
        leases = self._all()
        verdicts = self._queue.renew([(lease.job_id, lease.execution) for lease in leases])
        for lease, verdict in zip(leases, verdicts, strict=True):
            self._obey(lease, verdict)

    def post(self) -> None:
        """All lanes' frames in one round trip, each lane's in order."""
        while batch := tuple(islice(self._news(), POSTS_PER_CALL)):
            verdicts = self._queue.post([post for _, post in batch])
            for (lease, post), verdict in zip(batch, verdicts, strict=True):
                if verdict == "ok":
                    lease.posted(post)
                else:
                    self._obey(lease, verdict)

    def finish(self) -> None:
        """State the end of what has ended or is overdue. Its frames have been posted."""
        for lease in self._all():
            if lease.outcome is not None:
                self._end(lease, lease.outcome)
            elif lease.deadline.over:
                self._end(lease, OVERDUE)

    def hand_back(self, *, fault: bool) -> None:
        """Give every job back to the front of the queue."""
        for lease in self._all():
            verdict = self._queue.hand_back(lease.job_id, lease.execution, fault=fault)
            self._leases.pop(lease.execution)
            log.info(
                "handed_back",
                job=lease.job_id,
                frames=lease.evidence.frames,
                verdict=verdict,
                fault=fault,
            )

    def _all(self) -> tuple[Lease, ...]:
        return tuple(self._leases.values())

    def _news(self) -> Iterator[tuple[Lease, LanePost]]:
        for lease in self._leases.values():
            for post in lease.news():
                yield lease, post

    def _obey(self, lease: Lease, verdict: Verdict) -> None:
        if verdict == "cancelled":
            lease.cancel()
            self._stop(lease.execution)
        elif verdict == "lost":
            self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        """Another worker has the job, or it has ended: not a word more about it."""
        if self._leases.pop(lease.execution, None) is not None:
            self._stop(lease.execution)
            self._metrics.lost()
            log.warning("lease_lost", job=lease.job_id, frames=lease.evidence.frames)

    def _end(self, lease: Lease, outcome: Outcome) -> None:
        answer = self._state(lease, outcome)
        if answer.verdict == "cancelled":  # the caller's cancel came before our end
            lease.cancel()
            outcome = BY_CALLER
            answer = self._state(lease, outcome)
        if answer.verdict == "early":
            lease.extend(answer.remaining_ms)
        elif answer.verdict == "lost":
            self._lose(lease)
        else:
            self._close(lease, outcome)

    def _state(self, lease: Lease, outcome: Outcome) -> EndOutcome:
        terminal = lease.evidence.terminal(outcome, lease.facts, self._origin)
        return self._queue.end(lease.job_id, lease.execution, terminal)

    def _close(self, lease: Lease, outcome: Outcome) -> None:
        del self._leases[lease.execution]
        self._stop(lease.execution)
        log.info("job_ended", **lease.summary(outcome))
        lease.record(self._spans, outcome)
        self._metrics.ended(outcome.finish_reason, lease.first_audio_ms)
        with for_show("forget"):
            self._carrier.forget([lease.job_id])
