"""A small deployment for the queue's rules: over a fake Redis, and again over a real one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import fakeredis
import pytest
import redis
import redis.asyncio

from scheduler.admission import Admission, AdmitRequest, Admitted
from scheduler.cancellation import Cancellation
from scheduler.carrier import Carrier
from scheduler.connections import connect, connect_async
from scheduler.events import FRAME, parse
from scheduler.listeners import Caller, Listeners
from scheduler.load import Load
from scheduler.queue import Claim, LanePost, WorkQueue
from scheduler.reaper import Reaper, ReapReport
from scheduler.results import Results
from scheduler.subscriptions import EventReader
from shared.keys import Keys
from shared.messages import Event, FrameRecord, SpeechJob, Terminal
from shared.settings import QueueSettings
from tests.conftest import RedisServer

QUEUE = "t.demo.0123456789ab"


def queue_settings(**changes: Any) -> QueueSettings:
    return replace(QueueSettings.from_env({"PSIONIC_CSM_NAMESPACE": "t"}), **changes)


def speech_job(request_id: str = "r1", **changes: Any) -> SpeechJob:
    job = SpeechJob(
        request_id=request_id,
        cancellation_id=None,
        input="Hello.",
        artifact_id="demo@sha256:00",
        voice_profile_id="v",
        speaker=0,
        context_policy="none",
        max_frames=10,
        temperature=0.9,
        top_k=50,
        seed=7,
    )
    return replace(job, **changes)


def kind_of(fields: Mapping[bytes, bytes]) -> str:
    """Of an event as it stands in a job's stream: ``claimed``, ``frame`` or ``end``."""
    return "frame" if FRAME in fields else fields[b"k"].decode()


def frame(index: int) -> FrameRecord:
    return FrameRecord(index, bytes([index % 256]) * 64, bytes([index % 256]) * 3840)


def terminal(reason: str = "stop", **changes: Any) -> Terminal:
    base = Terminal(
        finish_reason=reason,
        stop_cause="eos" if reason == "stop" else None,
        failure_code=None,
        message="",
        generated_frame_count=1,
        prompt_frame_count=3,
        codebook_frames_sha256="sha256:aa",
        pcm16_sha256="sha256:bb",
        wav_pcm16_digest="sha256:cc",
        worker_id="w1",
        requested_backend="cpu",
        backend="cpu",
        execution_engine="torch_csm_cpu",
        residency="warm_cpu",
        accelerated_backend="unavailable_fail_closed",
        gpu_model="none",
        cpu_fallback_reason=None,
        runtime_image_ref="x",
        determinism_class="test",
    )
    return replace(base, **changes)


class SteadyWorkQueue(WorkQueue):
    """Its lanes count for a minute after each heartbeat, so that a busy machine loses no worker."""

    def heartbeat(
        self, document: dict[str, Any], *, lanes: int, step_ms: float | None = None
    ) -> None:
        super().heartbeat(document, lanes=lanes, step_ms=step_ms)
        if lanes:
            until_ms = time.time() * 1000 + 60_000
            self._redis.zadd(
                self._keys.lanes(self._queue), {f"{self._worker_id}|{lanes}": until_ms}
            )


class Deployment:
    """Every role's side of one queue, over one Redis."""

    def __init__(
        self,
        client: redis.Redis,
        aclient: redis.asyncio.Redis,
        settings: QueueSettings,
        advance_ms: Callable[[int], None],
    ) -> None:
        self.redis = client
        self.aredis = aclient
        self.settings = settings
        self.advance_ms = advance_ms
        self.keys = Keys(settings.namespace)
        self.carrier = Carrier(client, settings.namespace, QUEUE)
        self.admission = Admission(aclient, settings)
        self.cancellation = Cancellation(aclient, settings)
        self.results = Results(aclient, settings.namespace)
        self.load = Load(aclient, settings.namespace)
        self.reaper = Reaper(client, settings)
        self.reader = EventReader(aclient, settings.namespace, "g1")
        self.listeners = Listeners(
            aclient, settings, self.reader, self.admission, self.results, "g1"
        )

    def change(self, **settings: int) -> None:
        """Change rules of the queue, for all that were made with these settings."""
        for name, value in settings.items():
            object.__setattr__(self.settings, name, value)

    def worker(self, worker_id: str = "w1", lanes: int = 2, *, lapses: bool = False) -> WorkQueue:
        """A ready worker, whose lanes count for a minute; with ``lapses``, as long as a lease."""
        kind = WorkQueue if lapses else SteadyWorkQueue
        work = kind(self.redis, self.settings, self.carrier, QUEUE, worker_id)
        work.heartbeat({"worker_id": worker_id}, lanes=lanes)
        return work

    async def admit(
        self,
        request_id: str = "r1",
        *,
        principal: str = "p",
        timeout_ms: int = 10_000,
        fingerprint: str = "f",
        listener: str = "g1|1",
        priority: str = "interactive",
        **job: Any,
    ) -> Admitted:
        request = AdmitRequest(
            principal,
            QUEUE,
            fingerprint,
            timeout_ms,
            speech_job(request_id, **job),
            priority=priority,
        )
        return await self.admission.admit(request, self.admission.new_job_id(), listener)

    async def join(
        self, request_id: str = "r1", *, at: Listeners | None = None, **job: Any
    ) -> Caller:
        request = AdmitRequest("p", QUEUE, "f", 10_000, speech_job(request_id, **job))
        return await (self.listeners if at is None else at).join(request)

    def claim(self, work: WorkQueue, **options: Any) -> Claim:
        return self.claim_as(work, uuid4().hex, **options)

    def claim_as(self, work: WorkQueue, execution: str, **options: Any) -> Claim:
        claim = work.claim(execution, **options)
        assert isinstance(claim, Claim)
        return claim

    def post(self, work: WorkQueue, claim: Claim, *indexes: int) -> list[str]:
        return [
            verdict
            for index in indexes
            for verdict in work.post([LanePost(claim.job_id, claim.execution, frame(index))])
        ]

    def reap(self) -> ReapReport:
        """One pass over the one queue."""
        return next(report for report in self.reaper.reap() if report.queue == QUEUE)

    def lapse(self, job_id: str) -> None:
        """Reap until the job's lease may lapse and did, while its caller goes on listening."""
        for _ in range(100):
            self.redis.zadd(self.keys.listeners(job_id), {"g1|1": 9e15})
            if self.reap().returned:
                return
            self.advance_ms(max(50, self.settings.lease_ms // 4))
        pytest.fail("the lease never lapsed")

    def state(self, job_id: str) -> str:
        value: Any = self.redis.hget(self.keys.job(job_id), "state")
        return str(value.decode())

    def field(self, job_id: str, name: str) -> str | None:
        value: Any = self.redis.hget(self.keys.job(job_id), name)
        return None if value is None else str(value.decode())

    async def frames(self, job_id: str) -> list[FrameRecord]:
        """What is kept of a job's frames, in order."""
        return [record async for record in self.results.frames(job_id)]

    def kinds(self, job_id: str) -> list[str]:
        entries: Any = self.redis.xrange(self.keys.events(job_id))
        return [kind_of(fields) for _, fields in entries]

    def told(self, job_id: str) -> list[Event | None]:
        """What a job's listeners hear."""
        entries: Any = self.redis.xrange(self.keys.events(job_id))
        return [parse(fields) for _, fields in entries]

    def listed(self) -> list[str]:
        entries: Any = self.redis.lrange(self.carrier.list_key, 0, -1)
        return [entry.decode() for entry in entries]


class FakeClock:
    """The time that fakeredis tells, which is Redis's clock in these tests. It stands still but for
    what a test moves it by, so that nothing lapses because the machine is busy, unless it ``runs``.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, runs: bool = False) -> None:
        self.offset_s = 0.0
        began, real = time.time(), time.time

        def now() -> float:
            return (real() if runs else began) + self.offset_s

        monkeypatch.setattr(time, "time", now)

    def advance_ms(self, milliseconds: int) -> None:
        self.offset_s += milliseconds / 1000


@asynccontextmanager
async def over_fake(
    server: fakeredis.FakeServer, client: redis.Redis, settings: QueueSettings, clock: FakeClock
) -> AsyncIterator[Deployment]:
    """A deployment over an in-memory Redis, whose clock a test moves."""
    aclient = fakeredis.FakeAsyncRedis(server=server)
    yield Deployment(client, aclient, settings, clock.advance_ms)
    await aclient.aclose()


@asynccontextmanager
async def over_real(server: RedisServer, settings: QueueSettings) -> AsyncIterator[Deployment]:
    """A deployment over a real Redis, whose clock a test waits for."""
    client = connect(server.url)
    aclient = connect_async(server.url, timeout_s=1.5)
    yield Deployment(client, aclient, settings, lambda ms: time.sleep(ms / 1000))
    await aclient.aclose()
    client.close()


@pytest.fixture
def settings() -> QueueSettings:
    return queue_settings()


@pytest.fixture
async def fake(
    fake_server: fakeredis.FakeServer,
    fake_redis: redis.Redis,
    settings: QueueSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Deployment]:
    async with over_fake(fake_server, fake_redis, settings, FakeClock(monkeypatch)) as deployment:
        yield deployment


@pytest.fixture
async def real(redis_server: RedisServer) -> AsyncIterator[Deployment]:
    """Over a real server, with leases short enough to wait for."""
    short = queue_settings(lease_ms=1000, listener_ttl_ms=3000, reap_interval_ms=50)
    async with over_real(redis_server, short) as deployment:
        yield deployment


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.redis)])
def deployment(request: pytest.FixtureRequest) -> Any:
    """The same rules over both: what passes on the fake alone proves nothing about Redis."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def listening(deployment: Deployment) -> AsyncIterator[Deployment]:
    """A deployment whose gateway reads and renews."""
    deployment.reader.start()
    deployment.listeners.start()
    yield deployment
    await deployment.listeners.close()
    await deployment.reader.close()
