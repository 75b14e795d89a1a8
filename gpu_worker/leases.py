"""A claimed job from its claim to its end in the books."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from gpu_worker.evidence import Evidence, Outcome
from gpu_worker.generation import Ended, Frame, Generation
from scheduler.queue import LanePost
from shared.clock import Countdown, monotonic_ms
from shared.messages import CANCELLED, ERROR, TIMEOUT, FrameRecord
from shared.tracing import TraceContext

if TYPE_CHECKING:
    from gpu_worker.facts import RuntimeFacts
    from scheduler.queue import Claim
    from shared.tracing import Spans

ASK_MS: Final = 100.0
"""A lane without news asks this often whether to go on, so that a prefill can be cancelled."""

BY_CALLER: Final = Outcome(CANCELLED, failure_code="cancelled", message="cancelled by the caller")
OVERDUE: Final = Outcome(
    TIMEOUT, failure_code="generation_timeout", message="the deadline passed while generating"
)
FOREIGN_ARTIFACT: Final = Outcome(
    ERROR,
    failure_code="artifact_unavailable",
    message="the job asks for an artifact that this queue doesn't serve",
)


class Lease:
    """One job that is ours, and what it runs on.

    ``unposted`` holds frames that are not in Redis yet, at most the job's own length. ``outcome``
    is how it ended, once it has; no frame is taken after that.
    """

    def __init__(self, claim: Claim, facts: RuntimeFacts) -> None:
        self.claim = claim
        self.facts = facts
        self.deadline = Countdown(claim.remaining_ms)
        self.evidence = Evidence(claim.delivered)
        self.unposted: deque[FrameRecord] = deque()
        self.outcome: Outcome | None = None
        self._claimed_at_ms = self._heard_at_ms = monotonic_ms()
        self.first_audio_ms: float | None = None
        """From this claim to the first frame that was made under it."""

    @property
    def job_id(self) -> str:
        return self.claim.job_id

    @property
    def execution(self) -> str:
        return self.claim.execution

    @property
    def trace(self) -> TraceContext | None:
        return TraceContext.parse(self.claim.job.traceparent)

    def record(self, spans: Spans, outcome: Outcome) -> None:
        """The attempt as a span: prefill up to the first frame, generation from there on."""
        began_ms = self._claimed_at_ms
        span = spans.begin("attempt", self.trace, began_ms)
        first_ms = None if self.first_audio_ms is None else began_ms + self.first_audio_ms
        span.child("prefill", began_ms, first_ms)
        if first_ms is not None:
            span.child("generation", first_ms, None, frames=self.evidence.frames)
        span.end(
            outcome.failure_code,
            job=self.job_id,
            attempt=self.claim.attempt,
            finish_reason=outcome.finish_reason,
        )

    def generation(self, silence_stop_frames: int) -> Generation:
        """The job as the engine takes it: what was delivered is replayed."""
        job = self.claim.job
        return Generation(
            key=self.execution,
            text=job.input,
            speaker=job.speaker,
            voice_profile_id=job.voice_profile_id,
            context_policy=job.context_policy,
            max_frames=job.max_frames,
            temperature=job.temperature,
            top_k=job.top_k,
            seed=job.seed,
            replay=tuple(frame.codes for frame in self.claim.delivered),
            silence_stop_frames=silence_stop_frames,
        )

    def take(self, event: Frame | Ended) -> None:
        """Note what the engine made. What comes after the end is dropped."""
        if self.outcome is not None:
            return
        if isinstance(event, Frame):
            if self.first_audio_ms is None:
                self.first_audio_ms = monotonic_ms() - self._claimed_at_ms
            self.unposted.append(FrameRecord(event.index, event.codes, event.pcm))
        else:
            self.outcome = Outcome(
                event.finish_reason,
                event.stop_cause,
                event.failure_code,
                event.message,
                event.prompt_frame_count,
            )

    def news(self) -> Iterator[LanePost]:
        """The frames to post, or from time to time the bare question whether to go on."""
        for frame in self.unposted:
            yield LanePost(self.job_id, self.execution, frame)
        is_quiet = not self.unposted and self.outcome is None
        if is_quiet and monotonic_ms() - self._heard_at_ms >= ASK_MS:
            yield LanePost(self.job_id, self.execution, None)

    def posted(self, post: LanePost) -> None:
        """A post was accepted: its frame is part of the answer."""
        self._heard_at_ms = monotonic_ms()
        if self.unposted and post.frame is self.unposted[0]:
            self.evidence.add(self.unposted.popleft())

    def cancel(self) -> None:
        """The caller cancelled: what isn't delivered is dropped."""
        self.unposted.clear()
        self.outcome = BY_CALLER

    def extend(self, remaining_ms: int) -> None:
        """Another caller is prepared to wait longer."""
        self.deadline = Countdown(remaining_ms)

    def summary(self, outcome: Outcome) -> dict[str, Any]:
        """One log line's worth. Times in milliseconds since the claim, never a word of the text."""
        total_ms = monotonic_ms() - self._claimed_at_ms
        made = self.evidence.frames - len(self.claim.delivered)
        first = self.first_audio_ms
        trace = self.trace
        return {
            "job": self.job_id,
            "execution": self.execution,
            "request_id": self.claim.job.request_id,
            "attempt": self.claim.attempt,
            "finish_reason": outcome.finish_reason,
            "failure_code": outcome.failure_code,
            "queue_wait_ms": self.claim.queue_wait_ms,
            "first_audio_ms": None if first is None else round(first),
            "total_ms": round(total_ms),
            "trace_id": trace.trace_id if trace else None,
            "frames": self.evidence.frames,
            "frames_per_s": round(1000 * made / max(total_ms, 1.0), 1),
        }
