"""One caller's view of one job: what it hears, event by event, and for how long it waits.

Its deadline is the caller's own, kept here on the monotonic clock: whatever dies elsewhere, nobody
waits longer. An answer that is whole by then is handed over, however slowly its reader takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gateway.call import SpeechCall
from gateway.metrics import GatewayMetrics
from scheduler.admission import NO_WORKER_RETRY_S
from scheduler.asking import QueueAway
from scheduler.listeners import Caller
from shared.clock import Countdown, monotonic_ms
from shared.errors import SpeechError
from shared.messages import Claimed, End, FrameRecord

LAST_LOOK_S: Final = 0.2
"""How long it may take to find out at the deadline whether the answer is there."""
READ_S: Final = 1.0
"""How long a part of an answer that is there may take to come from Redis."""


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
    def recorded(self) -> End | None:
        """Of a replay, the end that it will come to."""
        return self._caller.recorded

    @property
    def kept_ms(self) -> int | None:
        """For how long the audio of a replay is still kept."""
        return self._caller.admitted.kept_ms

    @property
    def job_id(self) -> str:
        return self._caller.job_id

    @property
    def elapsed_ms(self) -> int:
        """Since the request arrived."""
        return int(monotonic_ms() - self._arrived_ms)

    @property
    def left_s(self) -> float:
        """Until the caller's own deadline."""
        return max(0.0, self._countdown.remaining_ms) / 1000

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
                    async with asyncio.timeout(self.left_s):
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
            raise draining_error() from None

    async def _next(self) -> FrameRecord | End:
        while True:
            event = await self._caller.next_event()
            if isinstance(event, End):
                return event
            if isinstance(event, Claimed):
                self._note_claim(event)
            elif event.index == self.frames:
                self._note_frame(event)
                return event
            elif event.index > self.frames:
                raise SpeechError("internal_error", "a frame is missing")

    def _note_claim(self, claimed: Claimed) -> None:
        if self._is_again:
            return
        if self.claimed is None and self._caller.admitted.kind == "admitted":
            self._metrics.waited(claimed)
        self.claimed = claimed
        self.times.claimed_ms = self.times.claimed_ms or monotonic_ms()

    def _note_frame(self, frame: FrameRecord) -> None:
        self.frames += 1
        if frame.index == 0:
            self.first_audio_ms = frame.elapsed_ms
            self.times.first_ms = self.times.first_ms or monotonic_ms()
        if not self._is_whole:
            self._pace.frame()

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


def draining_error() -> SpeechError:
    """What those hear who are not let in, or not served to their end, while the gateway drains."""
    return SpeechError("draining", "the service is draining", retry_after_s=NO_WORKER_RETRY_S)
