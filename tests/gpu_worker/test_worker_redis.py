"""A worker's whole life over a real Redis: how soon it picks up, restarts, stalls."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.connections import connect
from scheduler.events import FRAME, written_ms
from tests.conftest import RedisServer, until
from tests.gpu_worker import jobs, worker_stage
from tests.gpu_worker.jobs import SEED, digests_in, end_of, terminal_of
from tests.gpu_worker.worker_stage import (
    RunningWorker,
    ScriptedRuntime,
    Stage,
    digests_of,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import QUEUE, Deployment

pytestmark = pytest.mark.redis

books = worker_stage.real_books

FRAMES = 40
PACE_S = 0.06
"""Slow enough for a test to meet a job that is being spoken, on however busy a machine."""


def new_stage(books: Deployment, redis_server: RedisServer, *, pace_s: float = PACE_S) -> Stage:
    """A worker that plays by itself at its pace, with leases as in production."""
    settings = replace(books.settings, lease_ms=3000, renew_ms=500, reap_interval_ms=1000)
    runtime = ScriptedRuntime(lanes=2, plays=True, pace_s=pace_s)
    return Stage(connect(redis_server.url), settings, runtime, drain_grace_ms=100)


@pytest.fixture
def stage(books: Deployment, redis_server: RedisServer) -> Stage:
    return new_stage(books, redis_server)


@pytest.fixture
def life(stage: Stage) -> Iterator[RunningWorker]:
    life = stage.run()
    yield life
    stage.signals.count += 2
    life.wait()


def is_ready(books: Deployment) -> bool:
    return bool(books.redis.zcard(books.keys.lanes(QUEUE)))


async def admit(books: Deployment, request_id: str = "r1", **options: Any) -> str:
    """A job that takes a while."""
    return await jobs.admit(books, request_id, timeout_ms=30_000, max_frames=FRAMES, **options)


async def several_steps(stage: Stage) -> None:
    """The loop has gone round, and the engine has stepped, several times more."""
    before = stage.runtime.steps
    await until(lambda: stage.runtime.steps > before + 5)


async def whole_answer(books: Deployment, job_id: str) -> None:
    """The job ended with every frame once and in order, and digests over all of them."""
    await until(lambda: books.state(job_id) == "ended")
    frames = [entry for entry in stream_of(books, job_id) if not isinstance(entry, str)]
    assert frames == [record_of(SEED, index) for index in range(FRAMES)]
    assert (await end_of(books, job_id)).finish_reason == "length"
    assert digests_in(await terminal_of(books, job_id)) == digests_of(SEED, FRAMES)


def most_at_once(books: Deployment, job_id: str) -> int:
    """How many steps the frames lag behind the engine: the most that came within 10 ms."""
    entries: Any = books.redis.xrange(books.keys.events(job_id))
    times = [written_ms(position) for position, fields in entries if FRAME in fields]
    return max(sum(0 <= other - time <= 10 for other in times) for time in times)


async def test_an_idle_worker_picks_up_at_once(
    books: Deployment, stage: Stage, life: RunningWorker
) -> None:
    """From the push of the hint to the engine it takes milliseconds, not the next look round."""
    await until(lambda: is_ready(books))
    waits: list[float] = []
    for number in range(20):
        admitted = await books.admit(f"r{number}", seed=SEED, max_frames=1)
        began = time.monotonic()
        books.carrier.push(admitted.job_id)
        await until(lambda: len(stage.runtime.submitted) == len(waits) + 1)
        waits.append(time.monotonic() - began)
        await until(lambda: books.redis.zcard(books.keys.running(QUEUE)) == 0)

    assert statistics.median(waits) < 0.2


async def test_a_redis_that_restarts_under_it(
    books: Deployment, stage: Stage, life: RunningWorker, redis_server: RedisServer
) -> None:
    """A restart of Redis in mid-speech is heard by nobody: no frame is lost or repeated."""
    await until(lambda: is_ready(books))
    job_id = await admit(books)
    await until(lambda: len(stream_of(books, job_id)) > 5)

    redis_server.stop()
    await several_steps(stage)
    redis_server.start()

    await whole_answer(books, job_id)
    assert books.field(job_id, "attempt") == "1"


async def test_a_redis_that_stalls(
    books: Deployment, stage: Stage, life: RunningWorker, redis_server: RedisServer
) -> None:
    """A Redis that hangs holds the loop up for no longer than a socket timeout."""
    await until(lambda: is_ready(books))
    job_id = await admit(books)
    await until(lambda: len(stream_of(books, job_id)) > 5)

    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        await several_steps(stage)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)

    await whole_answer(books, job_id)


async def test_a_full_redis_keeps_nobody_waiting_who_was_let_in(
    books: Deployment, stage: Stage, life: RunningWorker
) -> None:
    """RQ can move no id then: the waiting are claimed without it and spoken to their end."""
    await until(lambda: is_ready(books))
    jobs = [await admit(books, f"r{number}") for number in range(4)]
    await until(lambda: len(stage.runtime.lanes) == 2)
    books.redis.config_set("maxmemory", int(books.redis.info("memory")["used_memory"]) // 2)

    for job_id in jobs:
        await whole_answer(books, job_id)
    await until(lambda: not stage.runtime.lanes)
    asked = int(books.redis.info("commandstats")["cmdstat_evalsha"]["calls"])
    began = time.monotonic()
    await asyncio.sleep(1.0)
    calls = int(books.redis.info("commandstats")["cmdstat_evalsha"]["calls"]) - asked
    took_s = time.monotonic() - began
    books.redis.config_set("maxmemory", 0)
    later = await admit(books, "later")

    await whole_answer(books, later)
    assert books.listed() == []
    assert calls < 30 * took_s


async def test_a_full_redis_makes_no_stream_stutter(
    books: Deployment, redis_server: RedisServer
) -> None:
    """With nothing to claim for its other lane, a worker posts each frame as it is made."""
    stage = new_stage(books, redis_server, pace_s=0.1)
    life = stage.run()
    await until(lambda: is_ready(books))
    job_id = await admit(books)
    await until(lambda: len(stream_of(books, job_id)) > 5)
    books.redis.config_set("maxmemory", int(books.redis.info("memory")["used_memory"]) // 2)
    try:
        await whole_answer(books, job_id)
    finally:
        stage.signals.count += 2
        life.wait()

    assert most_at_once(books, job_id) <= 5


async def test_drains_from_a_redis_that_hangs(
    books: Deployment, stage: Stage, redis_server: RedisServer
) -> None:
    """Told to stop while Redis hangs, a worker with a job ends in bounded time."""
    life = stage.run()
    await until(lambda: is_ready(books))
    await admit(books)
    await until(lambda: stage.runtime.submitted)

    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        stage.signals.count = 1
        assert life.wait() == 0
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)


async def test_two_workers_share_a_queue(
    books: Deployment, stage: Stage, life: RunningWorker, redis_server: RedisServer
) -> None:
    """Two workers on one queue speak every job once between them."""
    other = new_stage(books, redis_server)
    other_life = other.run()
    await until(lambda: books.redis.zcard(books.keys.lanes(QUEUE)) == 2)
    jobs = [
        (await books.admit(f"r{number}", seed=SEED, max_frames=5)).job_id for number in range(12)
    ]
    for job_id in jobs:
        books.carrier.push(job_id)

    await until(lambda: all(books.state(job_id) == "ended" for job_id in jobs))
    other.signals.count = 1

    assert other_life.wait() == 0
    assert len(stage.runtime.submitted) + len(other.runtime.submitted) == len(jobs)
    assert all(
        stream_of(books, job_id)[1:-1] == [record_of(SEED, index) for index in range(5)]
        for job_id in jobs
    )
