"""A call's way through the queue: in at the door, heard until it ends, and always left.

A ``Take`` is one caller's view of one job. Its deadline is the caller's own, kept here on the
monotonic clock: whatever dies elsewhere, nobody waits longer than that and ``GRACE_MS``, in which
the worker's own statement of a timeout may still arrive. An answer that is whole by then is handed
over, however slowly its reader takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from gateway import runtime
from gateway.door import Door
from gateway.facts import Facts
from gateway.hints import Hints
from gateway.metrics import GatewayMetrics
from gateway.terminals import lasting_facts
from gateway.validation import SpeechCall
from scheduler.admission import NO_WORKER_RETRY_S, AdmitRequest
from scheduler.connections import QueueAway, memory_low
from scheduler.listeners import Caller, Listeners
from shared.clock import Countdown, monotonic_ms
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact
from shared.messages import Claimed, End, FrameRecord

GRACE_MS: Final = 300
LAST_LOOK_S: Final = 0.2
"""How long it may take to find out at the deadline whether the answer is there."""
READ_S: Final = 1.0
"""How long a part of an answer that is there may take to come from Redis."""

MESSAGES: Final = {
    "runtime_unavailable": "the runtime is loading",
    "draining": "the service is draining",
}


@dataclass(slots=True)
class Times:
    """When a take came so far, as ``monotonic_ms`` tells it."""

    admitted_ms: float
    claimed_ms: float | None = None
    first_ms: float | None = None


class Take:
    """One caller's job, event by event."""

    def __init__(
        self,
        call: SpeechCall,
        caller: Caller,
        countdown: Countdown,
        arrived_ms: float,
        metrics: GatewayMetrics,
    ) -> None:
        self.call = call
        self.claimed: Claimed | None = None
        self.cut = False
        self._caller = caller
        self._countdown = countdown
        self._arrived_ms = arrived_ms
        self._metrics = metrics
        streamed = call.transport.stream_format is not None
        self._pace = metrics.pace(streamed=streamed, arrived_ms=arrived_ms)
        self.first_audio_ms: int | None = None
        """From admission to the first frame that was heard."""
        self.frames = 0
        """How many were heard; also the index of the next."""
        self.times = Times(monotonic_ms())
        self._is_whole = self.replayed
        self._is_again = False

    @property
    def replayed(self) -> bool:
        return self._caller.admitted.kind == "replay"

    @property
    def job_id(self) -> str:
        return self._caller.job_id

    @property
    def elapsed_ms(self) -> int:
        """Since the request arrived."""
        return int(monotonic_ms() - self._arrived_ms)

    @property
    def over_budget(self) -> bool:
        budget_ms = self.call.voice_turn_budget_ms
        return budget_ms is not None and self.elapsed_ms >= budget_ms

    async def next(self) -> FrameRecord | End:
        """The next frame, in order, or the end.

        Raises SpeechError: ``queue_timeout`` or ``generation_timeout`` at the caller's own
        deadline, ``queue_unavailable`` when Redis lost the job, ``draining`` when it was cut off.
        """
        with self.unless_cut():
            if not self._is_whole:
                try:
                    async with asyncio.timeout(max(0.0, self._countdown.remaining_ms) / 1000):
                        return await self._next()
                except TimeoutError:
                    self._is_whole = await self._has_ended()
            if self._is_whole:
                return await self._next_of_whole()
        code = "queue_timeout" if self.claimed is None else "generation_timeout"
        raise SpeechError(code, "the deadline passed")

    async def _has_ended(self) -> bool:
        """A look that takes no longer than it may: one that hangs is left to its own end, since a
        client that hangs may take its time to be cancelled, too.
        """
        looking = asyncio.create_task(self._caller.has_ended(), name="last-look")
        try:
            done, _ = await asyncio.wait({looking}, timeout=LAST_LOOK_S)
        finally:
            looking.cancel()
        return bool(done) and looking.result()

    async def _next_of_whole(self) -> FrameRecord | End:
        try:
            async with asyncio.timeout(READ_S):
                return await self._next()
        except TimeoutError:
            raise QueueAway from None

    def start_over(self) -> None:
        """Once the end was heard: hear the same answer again from its first frame."""
        self._is_whole, self._is_again, self.frames = True, True, 0
        self._caller.start_over()

    @contextmanager
    def unless_cut(self) -> Iterator[None]:
        """A wait that ends with SpeechError("draining") when this take is cut off."""
        try:
            yield
        except asyncio.CancelledError:
            if not self.cut:
                raise
            raise _refusal("draining") from None

    async def _next(self) -> FrameRecord | End:
        while True:
            event = await self._caller.next_event()
            if isinstance(event, Claimed) and not self._is_again:
                if self.claimed is None and self._caller.admitted.kind == "admitted":
                    self._metrics.waited(event)
                self.claimed = event
                self.times.claimed_ms = self.times.claimed_ms or monotonic_ms()
            elif isinstance(event, End):
                return event
            elif isinstance(event, Claimed):
                continue
            elif event.index == self.frames:
                self.frames += 1
                if event.index == 0:
                    self.first_audio_ms = event.elapsed_ms
                    self.times.first_ms = self.times.first_ms or monotonic_ms()
                if not self._is_whole:
                    self._pace.frame()
                return event
            elif event.index > self.frames:
                raise SpeechError("internal_error", "a frame is missing")

    async def next_within_budget(self) -> FrameRecord | End | None:
        """As ``next``, or None when the voice turn's budget is used up first."""
        budget_ms = self.call.voice_turn_budget_ms
        if budget_ms is None:
            return await self.next()
        try:
            async with asyncio.timeout(max(0, budget_ms - self.elapsed_ms) / 1000):
                return await self.next()
        except TimeoutError:
            return None


class Speech:
    """The door of one gateway process, and the callers inside."""

    def __init__(
        self,
        listeners: Listeners,
        facts: Facts,
        hints: Hints,
        namespace: str,
        metrics: GatewayMetrics,
    ) -> None:
        self._listeners = listeners
        self._facts = facts
        self._hints = hints
        self._namespace = namespace
        self._metrics = metrics
        self._inside: dict[Take, asyncio.Task[Any]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.door = Door()
        self.draining = False
        self._is_cut_off = False

    @asynccontextmanager
    async def take(
        self, call: SpeechCall, principal: str, arrived_ms: float
    ) -> AsyncIterator[Take]:
        """Pass the door; leave when the block ends, however it ends.

        Raises SpeechError for every refusal at the door.
        """
        countdown = Countdown(call.timeout_ms + GRACE_MS - (monotonic_ms() - arrived_ms))
        caller = await self._enter(call, principal, countdown)
        take = Take(call, caller, countdown, arrived_ms, self._metrics)
        task = asyncio.current_task()
        assert task is not None
        self._inside[take] = task
        try:
            if self._is_cut_off:
                raise _refusal("draining")
            yield take
        finally:
            del self._inside[take]
            leaving = asyncio.create_task(caller.leave(), name="leave")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)

    def cut_off(self) -> None:
        """End what is still inside: each caller is told ``draining`` in the way that is left."""
        self._is_cut_off = True
        for take, task in self._inside.items():
            if not take.cut:
                take.cut = True
                task.cancel()

    async def close(self) -> None:
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _enter(self, call: SpeechCall, principal: str, countdown: Countdown) -> Caller:
        if self.draining:
            raise _refusal("draining")
        snapshot = await self._facts.snapshot()
        if snapshot.memory_low:
            raise memory_low()
        try:
            async with self.door.turn((countdown.remaining_ms - GRACE_MS) / 1000):
                caller = await self._listeners.join(self._request(call, principal, countdown))
        except SpeechError as error:
            if error.code == "no_ready_worker":
                error = await self._why_no_worker(call.artifact, error)
            raise error
        if caller.admitted.kind == "admitted":
            self._hints.give(call.artifact.queue_name(self._namespace), caller.job_id)
        return caller

    def _request(self, call: SpeechCall, principal: str, countdown: Countdown) -> AdmitRequest:
        """What is asked of the queue, with the time that is left after the wait at the door."""
        timeout_ms = int(countdown.remaining_ms) - GRACE_MS
        if timeout_ms <= 0:
            raise SpeechError(
                "too_many_waiting", "the timeout passed at this gateway's door", retry_after_s=1.0
            )
        return AdmitRequest(
            principal,
            call.artifact.queue_name(self._namespace),
            call.fingerprint,
            timeout_ms,
            call.job,
            lasting_facts(call),
            call.priority,
        )

    async def _why_no_worker(self, artifact: Artifact, error: SpeechError) -> SpeechError:
        """The refusal that says more than ``error``, if the workers do."""
        workers = await self._facts.workers_of(artifact)
        code = runtime.refusal_code(workers)
        if code == error.code:
            return error
        return _refusal(code, str(runtime.commonest_refusal(workers)["reason"]))


def _refusal(code: str, reason: str = "") -> SpeechError:
    message = MESSAGES.get(code) or reason or "no worker can serve this artifact"
    return SpeechError(code, message, retry_after_s=NO_WORKER_RETRY_S)
