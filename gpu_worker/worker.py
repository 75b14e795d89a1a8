"""The worker process: this thread keeps the books, the runtime's thread makes the frames.

Once round the loop (``Worker.turn``): hear what the engine made, renew leases, post frames, state
ends, say how things stand, put right what others left, take new jobs. Redis may be away at any
point of it: what wasn't written is written in a later turn, and the engine goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from redis.exceptions import RedisError

from gpu_worker.books import Books
from gpu_worker.drain import Drain
from gpu_worker.engine_thread import EngineFault
from gpu_worker.evidence import Origin
from gpu_worker.facts import RuntimeFacts
from gpu_worker.for_show import for_show
from gpu_worker.generation import Event, Frame, Released, SpeechRuntime
from gpu_worker.heartbeat import Heartbeat, Identity, ServedArtifact
from gpu_worker.intake import Intake, Taken
from gpu_worker.leases import FOREIGN_ARTIFACT, Lease
from gpu_worker.metrics import WorkerMetrics
from gpu_worker.occupancy import Occupancy
from gpu_worker.watchdog import Watchdog
from scheduler.carrier import Carrier
from scheduler.connections import trouble_in_words
from scheduler.link import Link
from scheduler.queue import WorkQueue
from scheduler.reaper import Reaper
from shared.clock import Countdown
from shared.messages import DRAINING, READY
from shared.tracing import NoSpans

if TYPE_CHECKING:
    from redis import Redis

    from gpu_worker.signals import StopSignals
    from shared.settings import WorkerSettings
    from shared.tracing import Spans

DRAINED: Final = 0
REDIS_REFUSED: Final = 69
"""Exit code (EX_UNAVAILABLE) after Redis called a command wrong, for which no job is to blame."""
ENGINE_FAULT: Final = 70
"""Exit code (EX_SOFTWARE) after the engine died or hung; a supervisor starts the process again."""

IDLE_WAIT_S: Final = 0.25
"""How long an idle worker waits for RQ before it looks round: bounds how late it sees a signal."""
BUSY_WAIT_S: Final = 0.05
NEWCOMER_WAIT_S: Final = 0.02
"""How long it waits for the engine while lanes are busy: without and with a lane free."""
STEPS_PER_TURN: Final = 16
CLOSE_S: Final = 5.0
REAPED_AT_ONCE: Final = 32
"""So much may a reap do job by job between two frames."""
SILENT_MS: Final = 30_000.0
"""A loop that has not gone round for so long is stuck."""

log = structlog.get_logger()


class Worker:
    """One process's worker, over one runtime and one artifact's queue."""

    def __init__(
        self,
        settings: WorkerSettings,
        served: ServedArtifact,
        runtime: SpeechRuntime,
        redis: Redis,
        signals: StopSignals,
        metrics: WorkerMetrics | None = None,
        spans: Spans | None = None,
    ) -> None:
        queue = settings.queue
        self.identity = Identity.of_this_process()
        self._settings = settings
        self._served = served
        self._runtime = runtime
        self.metrics = metrics or WorkerMetrics()
        self._spans = spans or NoSpans()
        worker_id = self.identity.worker_id
        self._carrier = Carrier(redis, queue.namespace, served.queue)
        self._queue = WorkQueue(redis, queue, self._carrier, served.queue, worker_id)
        gap_ms = 9 * queue.reap_interval_ms // 10
        self._reaper = Reaper(redis, queue, gap_ms=gap_ms, most=REAPED_AT_ONCE, calls=1)
        self._intake = Intake(self._carrier, self._queue)
        self._heartbeat = Heartbeat(settings, self.identity, served, self._queue, self._carrier)
        origin = Origin(worker_id, settings.runtime_image_ref)
        self._lanes = Occupancy(runtime.stop)
        self._books = Books(
            self._queue, self._carrier, origin, self._lanes.stop, self.metrics, self._spans
        )
        self._watchdog = Watchdog()
        self.is_engine_left = False
        """Whether the engine's thread still ran when the worker was done: it never may end."""
        self._link = Link()
        self._drain = Drain(signals, settings.drain_grace_ms)
        self._renewal, self._reaping = Countdown(0), Countdown(0)
        self._silent = Countdown(SILENT_MS)

    @property
    def is_live(self) -> bool:
        """Whether the loop goes round. Redis being away is no reason to start again."""
        return not self._silent.over

    @property
    def is_ready(self) -> bool:
        return self._heartbeat.said == READY

    def run(self) -> int:
        """Serve until told to stop or until the engine dies or hangs; returns the exit code."""
        log.info("worker_started", worker=self.identity.worker_id, queue=self._served.queue)
        self._runtime.start()
        is_fault = True
        try:
            self._drain.heed_signals(len(self._books))
            while not self._drain.is_done(len(self._books)):
                self.turn()
                self._drain.heed_signals(len(self._books))
            self._flush()
            is_fault = False
        except EngineFault as fault:
            log.error("engine_fault", cause=str(fault), in_flight=len(self._books))
            self._flush()
            return ENGINE_FAULT
        except RedisError as error:
            log.error("redis_refused", error=trouble_in_words(error), in_flight=len(self._books))
            is_fault = False
            return REDIS_REFUSED
        finally:
            self._leave(fault=is_fault)
        return DRAINED

    def turn(self) -> None:
        """Once round the loop."""
        self._silent = Countdown(SILENT_MS)
        self._hear_engine(self._patience_s())
        self._watchdog.look(self._runtime.rounds, is_busy=bool(self._lanes))
        if self._link.due:
            with self._link.attempt():
                self._renew()
                self._books.post()
                self._books.finish()
                self._beat()
                self._reap()
                self._take_jobs()

    def _state(self, facts: RuntimeFacts) -> str:
        """loading, ready, unavailable or draining."""
        return DRAINING if self._drain.has_begun else facts.state

    def _flush(self) -> None:
        """A last try to write what is known, before the rest is handed back."""
        if not self._books:
            return
        with self._last_attempt():
            self._books.post()
            self._books.finish()

    def _leave(self, *, fault: bool) -> None:
        """Hand back what is left, and go from the registers. Redis is tried once."""
        with self._last_attempt():
            self._books.hand_back(fault=fault)
            with for_show("death"):
                self._carrier.death()
            self._queue.farewell()
        self.is_engine_left = not self._runtime.close(CLOSE_S)
        self._spans.close()
        log.info("worker_stopped", worker=self.identity.worker_id, left_to_lapse=len(self._books))

    @contextmanager
    def _last_attempt(self) -> Iterator[None]:
        """As an attempt of the link, but what Redis refuses then lapses."""
        try:
            with self._link.attempt():
                yield
        except RedisError as error:
            log.error("redis_refused", error=trouble_in_words(error), in_flight=len(self._books))

    def _patience_s(self) -> float:
        """How long to wait for the engine; not at all where the wait will be for RQ."""
        if self._lanes:
            return NEWCOMER_WAIT_S if self._has_room() else BUSY_WAIT_S
        asks = self._has_room() and self._link.due and self._intake.due
        return 0.0 if asks else BUSY_WAIT_S

    def _hear_engine(self, patience_s: float) -> None:
        """Take in what the engine made; several steps of it if this thread is late."""
        for _ in range(STEPS_PER_TURN):
            events = self._runtime.poll(patience_s)
            if not events:
                return
            self.metrics.spoke(sum(isinstance(event, Frame) for event in events))
            for event in events:
                self._hear(event)
            patience_s = 0.0

    def _hear(self, event: Event) -> None:
        lease = self._books.find(event.key)
        if lease is not None and not isinstance(event, Released):
            lease.take(event)
        if not isinstance(event, Frame):
            self._lanes.release(event.key)

    def _renew(self) -> None:
        if self._renewal.over or self._link.away:
            self._books.renew()
            self._renewal = Countdown(self._settings.queue.renew_ms)

    def _beat(self) -> None:
        facts = self._runtime.facts
        state = self._state(facts)
        if not (self._heartbeat.is_due(state) or self._link.away):
            return
        usage = self._runtime.usage()
        self.metrics.stands(state, facts, usage, len(self._lanes))
        self._heartbeat.beat(
            state,
            facts,
            usage,
            in_flight=len(self._books),
            is_busy=bool(self._lanes),
            is_anew=self._link.away,
        )

    def _reap(self) -> None:
        if not (self._reaping.over or self._reaper.unfinished):
            return
        if self._reaping.over:
            self._reaping = Countdown(self._settings.queue.reap_interval_ms)
        with for_show("reap"):  # our own keys are mended; what else fails is RQ's
            self._reaper.reap()

    def _has_room(self) -> bool:
        """Whether a job may be taken: only while the worker says of itself that it is ready."""
        is_ready = self._heartbeat.said == READY
        return is_ready and self._lanes.has_room(self._runtime.facts.lanes)

    def _take_jobs(self) -> None:
        while self._has_room():
            wait_s = None if self._lanes or self._books else self._idle_wait_s()
            taken = self._intake.take(len(self._lanes), wait_s)
            if taken is None:
                return
            self._begin(taken)

    def _idle_wait_s(self) -> float:
        until_due = min(self._heartbeat.remaining_ms, self._reaping.remaining_ms) / 1000
        return max(0.01, min(IDLE_WAIT_S, until_due))

    def _begin(self, taken: Taken) -> None:
        claim = taken.claim
        lease = Lease(claim, self._runtime.facts)
        self._books.enter(lease)
        if claim.job.artifact_id != self._served.artifact_id:
            lease.outcome = FOREIGN_ARTIFACT
        else:
            self._lanes.take(lease.execution, is_solo=claim.solo)
            self._runtime.submit(lease.generation(self._settings.silence_stop_frames))
        with for_show("started"):
            self._carrier.started(lease.job_id, taken.hint)
