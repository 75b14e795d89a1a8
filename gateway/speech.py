"""A call's way through the queue: in at the door, heard until it ends, and always left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from gateway import runtime
from gateway.call import SpeechCall
from gateway.door import Door
from gateway.evidence import asked
from gateway.facts import Facts
from gateway.hints import Hints
from gateway.metrics import GatewayMetrics
from gateway.take import Take, draining_error
from gateway.terminals import lasting_facts
from scheduler.admission import NO_WORKER_RETRY_S, AdmitRequest
from scheduler.asking import QueueAway, memory_low
from scheduler.listeners import Caller, Listeners
from shared.clock import Countdown, monotonic_ms
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact

GRACE_MS: Final = 300
"""Beyond a caller's deadline, in which the worker's own statement of a timeout may still arrive."""


class Speech:
    """The callers of one gateway process: let in by the door, and always seen out."""

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
                raise draining_error()
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
            raise draining_error()
        try:
            async with asyncio.timeout(max(0.0, countdown.remaining_ms) / 1000):
                caller = await self._pass_door(call, principal, countdown)
        except TimeoutError:
            raise QueueAway("the queue did not answer in time") from None
        if caller.admitted.kind == "admitted":
            self._hints.give(call.artifact.queue_name(self._namespace), caller.job_id)
        return caller

    async def _pass_door(self, call: SpeechCall, principal: str, countdown: Countdown) -> Caller:
        if self._listeners.deaf:
            raise QueueAway
        snapshot = await self._facts.snapshot()
        if snapshot.memory_low:
            raise memory_low()
        try:
            async with self.door.turn((countdown.remaining_ms - GRACE_MS) / 1000):
                return await self._listeners.join(self._request(call, principal, countdown))
        except SpeechError as error:
            if error.code == "no_ready_worker":
                error = await self._why_no_worker(call.artifact, error)
            raise error

    def _request(self, call: SpeechCall, principal: str, countdown: Countdown) -> AdmitRequest:
        """What is asked of the queue, with the time that is left after the wait at the door."""
        timeout_ms = int(countdown.remaining_ms) - GRACE_MS
        if timeout_ms <= 0:
            raise SpeechError(
                "deadline_unmeetable",
                "the timeout passed before the queue was asked",
                retry_after_s=1.0,
            )
        return AdmitRequest(
            principal,
            call.artifact.queue_name(self._namespace),
            call.fingerprint,
            timeout_ms,
            call.job,
            {**lasting_facts(call), "asked": asked(call)},
            call.priority,
        )

    async def _why_no_worker(self, artifact: Artifact, error: SpeechError) -> SpeechError:
        """The refusal that says more than ``error``, if the workers do."""
        workers = await self._facts.workers_of(artifact)
        code = runtime.refusal_code(workers)
        if code == error.code:
            return error
        if code == "draining":
            return draining_error()
        message = "the runtime is loading"
        if code != "runtime_unavailable":
            message = str(runtime.commonest_refusal(workers)["reason"])
        return SpeechError(
            code,
            message or "no worker can serve this artifact",
            retry_after_s=NO_WORKER_RETRY_S,
        )
