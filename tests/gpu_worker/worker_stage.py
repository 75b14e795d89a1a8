"""A worker over an engine that the test plays: frames come when the test says so."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, ClassVar

import fakeredis
import pytest
import redis

from gpu_worker.engine_thread import EngineFault
from gpu_worker.facts import Refusal, RuntimeFacts
from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from gpu_worker.heartbeat import ServedArtifact
from gpu_worker.signals import StopSignals
from gpu_worker.telemetry import Usage
from gpu_worker.worker import Worker
from scheduler.events import FRAME
from scheduler.queue import Claim
from shared.digests import CodebookDigest, Pcm16Digest, wav_pcm16_digest
from shared.messages import READY, FrameRecord
from shared.settings import QueueSettings, WorkerSettings
from shared.tracing import Spans
from tests.conftest import WAIT_S, RedisServer
from tests.scheduler.conftest import (
    QUEUE,
    Deployment,
    FakeClock,
    kind_of,
    over_fake,
    over_real,
    queue_settings,
)

ARTIFACT = "demo@sha256:00"
SERVED = ServedArtifact(ARTIFACT, "sha256:00", QUEUE)


def codes_of(seed: int, index: int) -> bytes:
    """The 64 bytes of codes that every scripted engine makes for this frame."""
    return hashlib.sha256(f"codes {seed} {index}".encode()).digest() * 2


def pcm_of(seed: int, index: int) -> bytes:
    return hashlib.sha256(f"pcm {seed} {index}".encode()).digest() * 120


def record_of(seed: int, index: int) -> FrameRecord:
    return FrameRecord(index, codes_of(seed, index), pcm_of(seed, index))


def digests_of(seed: int, frames: int) -> tuple[str, str, str]:
    """What an undisturbed run of so many frames states: codes, samples, WAV file."""
    codes, samples = CodebookDigest(), Pcm16Digest()
    pieces = [pcm_of(seed, index) for index in range(frames)]
    for index, piece in enumerate(pieces):
        codes.update(codes_of(seed, index))
        samples.update(piece)
    return str(codes), str(samples), wav_pcm16_digest(pieces)


def facts(state: str = READY, lanes: int = 2, refusal: Refusal | None = None) -> RuntimeFacts:
    is_ready = state == READY
    return RuntimeFacts(
        state=state,
        refusal=refusal,
        requested_backend="cpu",
        backend="cpu" if is_ready else "none",
        execution_engine="torch_csm_cpu" if is_ready else "none",
        residency="warm_cpu" if is_ready else state,
        accelerated_backend="unavailable_fail_closed",
        gpu_model="none",
        cpu_fallback_reason=None,
        loaded_at_unix_ms=1 if is_ready else None,
        load_latency_ms=2 if is_ready else None,
        tokenizer_loaded=is_ready,
        csm_config_loaded=is_ready,
        csm_model_loaded=is_ready,
        mimi_loaded=is_ready,
        lanes=lanes if is_ready else 0,
        determinism_class="scripted",
        memory_required_bytes=3,
    )


class ScriptedRuntime:
    """The engine's place. ``step`` makes a frame in every lane; nothing happens by itself.

    With ``plays`` set, every poll of a busy engine is a step of ``pace_s`` seconds, and a row ends
    with ``length``.
    """

    def __init__(self, lanes: int = 2, *, plays: bool = False, pace_s: float = 0.0) -> None:
        self.facts = facts(lanes=lanes)
        self.submitted: list[Generation] = []
        self.stopped: list[str] = []
        self.steps = 0
        self.rounds = 0
        self.hangs = False
        self.closed = False
        self.lanes: dict[str, tuple[Generation, int]] = {}
        self._plays, self._pace_s = plays, pace_s
        self._batches: deque[list[Event]] = deque()
        self._is_dead = False
        self._changed = threading.Condition()

    # What the worker calls

    def usage(self) -> Usage:
        return Usage(4, None)

    def start(self) -> None:
        pass

    def submit(self, generation: Generation) -> None:
        with self._changed:
            assert len(self.lanes) < self.facts.lanes, "a lane must be free"
            self.submitted.append(generation)
            self.lanes[generation.key] = (generation, len(generation.replay))
            self._changed.notify_all()

    def stop(self, key: str) -> None:
        self.stopped.append(key)
        if self._plays:
            self.release(key)

    def poll(self, timeout_s: float) -> list[Event]:
        self.rounds += not self.hangs
        if self._plays and timeout_s > 0:
            self._play(timeout_s)
        with self._changed:
            if self._batches:
                return self._batches.popleft()
            if self._is_dead:
                raise EngineFault("RuntimeError")
            return []

    def close(self, timeout_s: float) -> bool:
        self.closed = True
        return True

    # What the test calls

    def wait_for_lane(self, timeout_s: float = WAIT_S) -> str:
        """The execution of the one busy lane, once there is one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.lanes, timeout_s)
            return next(iter(self.lanes))

    def step(self, *keys: str) -> None:
        """One frame in each of these lanes (or in all), as one batch."""
        events: list[Event] = []
        with self._changed:
            for key in keys or tuple(self.lanes):
                generation, index = self.lanes[key]
                seed = generation.seed
                events.append(Frame(key, index, codes_of(seed, index), pcm_of(seed, index)))
                self.lanes[key] = (generation, index + 1)
            self._batches.append(events)
            self.steps += 1

    def end(
        self, key: str, reason: str = "stop", cause: str | None = "eos", code: str | None = None
    ) -> None:
        with self._changed:
            _, frames = self.lanes.pop(key)
            self._batches.append([Ended(key, reason, cause, code, "", frames, 7)])

    def release(self, key: str) -> None:
        """Answer a stop."""
        with self._changed:
            self.lanes.pop(key, None)
            self._batches.append([Released(key)])

    def die(self) -> None:
        with self._changed:
            self._is_dead = True

    def become(self, state: str, code: str | None = None) -> None:
        refusal = None if code is None else Refusal(code, "why", ("what_to_do",))
        self.facts = facts(state, refusal=refusal)

    def _play(self, timeout_s: float) -> None:
        with self._changed:
            if not self._batches:
                self._changed.wait_for(lambda: self._is_dead, self._pace_s or timeout_s)
            busy = tuple(self.lanes)
        if busy:
            self.step()
            for key in busy:
                generation, frames = self.lanes[key]
                if frames >= generation.max_frames:
                    self.end(key, "length", None)


class Stage:
    """A worker whose loop the test turns, and the queue around it."""

    def __init__(
        self,
        client: redis.Redis,
        queue: QueueSettings,
        runtime: ScriptedRuntime,
        spans: Spans | None = None,
        **changes: Any,
    ) -> None:
        self.runtime = runtime
        self.signals = StopSignals()
        self.settings = worker_settings(queue, **changes)
        self.worker = Worker(self.settings, SERVED, runtime, client, self.signals, spans=spans)

    @property
    def worker_id(self) -> str:
        return self.worker.identity.worker_id

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.worker.turn()

    def turn_until(self, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Turn the loop until something holds; a failure if it never does."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            self.worker.turn()

    def run(self) -> RunningWorker:
        return RunningWorker(self.worker, self.signals)


class RunningWorker:
    """A worker's whole life in a thread of its own, which no failure may leave running."""

    started: ClassVar[list[RunningWorker]] = []

    def __init__(self, worker: Worker, signals: StopSignals) -> None:
        self._code: int | None = None
        self._worker = worker
        self._signals = signals
        self._thread = threading.Thread(target=self._main, name="worker", daemon=True)
        self._thread.start()
        self.started.append(self)

    def end(self) -> None:
        """Stop it if it still runs, as a second signal would."""
        self._signals.count += 2
        self._thread.join(WAIT_S)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """The exit code."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the worker doesn't end"
        assert self._code is not None
        return self._code

    def _main(self) -> None:
        self._code = self._worker.run()


def worker_settings(queue: QueueSettings, **changes: Any) -> WorkerSettings:
    settings = WorkerSettings.from_env({"PSIONIC_CSM_ARTIFACTS": "artifact"})
    return replace(settings, queue=queue, **changes)


def stream_of(books: Deployment, job_id: str) -> list[Any]:
    """All that a job's listeners heard: frames without their times, else the kind of event."""
    entries: Any = books.redis.xrange(books.keys.events(job_id))
    return [
        FrameRecord.unpack(fields[FRAME]) if FRAME in fields else kind_of(fields)
        for _, fields in entries
    ]


def claimed(value: object) -> Claim:
    assert isinstance(value, Claim)
    return value


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker looks round soon, and tries a Redis that was away again at once."""
    monkeypatch.setattr("gpu_worker.worker.IDLE_WAIT_S", 0.01)
    monkeypatch.setattr("scheduler.link.FIRST_PAUSE_MS", 0.0)
    monkeypatch.setattr("gpu_worker.intake.HOLD_MS", 0.0)


@pytest.fixture
async def fake_books(
    fake_server: fakeredis.FakeServer, fake_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Deployment]:
    """The queue over a fake Redis whose clock the test moves."""
    settings = queue_settings(listener_ttl_ms=600_000)
    clock = FakeClock(monkeypatch, runs=True)
    async with over_fake(fake_server, fake_redis, settings, clock) as books:
        yield books


@pytest.fixture
async def real_books(redis_server: RedisServer) -> AsyncIterator[Deployment]:
    """The queue over a real Redis, with leases short enough to wait for."""
    settings = queue_settings(
        lease_ms=400, renew_ms=50, reap_interval_ms=50, listener_ttl_ms=600_000
    )
    async with over_real(redis_server, settings) as books:
        yield books


@pytest.fixture(params=["fake_books", pytest.param("real_books", marks=pytest.mark.redis)])
def any_books(request: pytest.FixtureRequest) -> Any:
    """Both: what passes on the fake alone proves nothing about Redis."""
    return request.getfixturevalue(request.param)
