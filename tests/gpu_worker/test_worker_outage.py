"""A worker while Redis is away: generations go on, nothing is lost, nothing is written twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ResponseError
from structlog.testing import capture_logs

from gpu_worker.heartbeat import SHOWN_AGAIN_MS
from scheduler.carrier import Carrier
from scheduler.queue import WorkQueue
from shared.clock import monotonic_ms
from tests.gpu_worker import jobs, worker_stage
from tests.gpu_worker.jobs import SEED, digests_in, ready_on_stage, terminal_of
from tests.gpu_worker.worker_stage import (
    ScriptedRuntime,
    Stage,
    digests_of,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import QUEUE, Deployment

books, no_waiting = worker_stage.fake_books, worker_stage.no_waiting

pytestmark = pytest.mark.usefixtures("no_waiting")

SCRIPT_OOM = ResponseError(
    "Error running script (call to f_1): @user_script:9: -OOM command not allowed"
)


async def speaking(books: Deployment) -> tuple[Stage, str, str]:
    """A worker in mid-speech, its job and the execution."""
    stage = ready_on_stage(books)
    return stage, *(await jobs.speaking(books, stage))


def speak(stage: Stage, key: str, frames: int) -> None:
    for _ in range(frames):
        stage.runtime.step(key)
        stage.turn()


async def test_speaks_on_while_redis_is_away(
    books: Deployment, fake_server: fakeredis.FakeServer
) -> None:
    """Frames and end that came during an outage are written in order when Redis is back."""
    stage, job_id, key = await speaking(books)

    fake_server.connected = False
    speak(stage, key, 100)
    stage.runtime.end(key)
    stage.turn()
    fake_server.connected = True
    stage.turn_until(lambda: books.state(job_id) == "ended")

    assert stream_of(books, job_id) == [
        "claimed",
        *(record_of(SEED, index) for index in range(101)),
        "end",
    ]
    assert digests_in(await terminal_of(books, job_id)) == digests_of(SEED, 101)


async def test_renews_first_when_redis_is_back(
    books: Deployment, fake_server: fakeredis.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are asserted before anything else is written after an outage."""
    stage, _, key = await speaking(books)
    fake_server.connected = False
    speak(stage, key, 2)
    calls: list[str] = []

    def noting(name: str) -> None:
        method = getattr(WorkQueue, name)

        def note(self: WorkQueue, *args: Any, **options: Any) -> Any:
            calls.append(name)
            return method(self, *args, **options)

        monkeypatch.setattr(WorkQueue, name, note)

    for name in ("renew", "post", "heartbeat", "claim"):
        noting(name)
    fake_server.connected = True
    stage.turn_until(lambda: "heartbeat" in calls)

    assert calls[:3] == ["renew", "post", "heartbeat"]


async def test_a_lost_reply_to_a_post_writes_nothing_twice(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that Redis took but didn't acknowledge are sent again, and are there once."""
    stage, job_id, key = await speaking(books)
    post, calls = WorkQueue.post, []

    def losing(self: WorkQueue, lanes: Any) -> Any:
        verdicts = post(self, lanes)
        calls.append(lanes)
        if len(calls) == 1:
            raise RedisConnectionError("the reply was lost")
        return verdicts

    monkeypatch.setattr(WorkQueue, "post", losing)
    stage.runtime.step(key)
    stage.turn_until(lambda: len(calls) > 1)
    stage.runtime.end(key)
    stage.turn_until(lambda: books.state(job_id) == "ended")

    frames = [entry for entry in stream_of(books, job_id) if not isinstance(entry, str)]
    assert frames == [record_of(SEED, 0), record_of(SEED, 1)]
    assert digests_in(await terminal_of(books, job_id)) == digests_of(SEED, 2)


async def test_a_cancel_made_during_the_outage_is_obeyed(
    books: Deployment, fake_server: fakeredis.FakeServer
) -> None:
    """A worker that was cut off learns of the cancel first, and posts nothing that it kept."""
    stage, job_id, key = await speaking(books)
    fake_server.connected = False
    speak(stage, key, 3)

    fake_server.connected = True
    await books.cancellation.cancel("p", "request", "r1")
    stage.turn_until(lambda: books.state(job_id) == "ended")

    assert stream_of(books, job_id) == ["claimed", record_of(SEED, 0), "end"]
    assert books.field(job_id, "finish_reason") == "cancelled"


async def test_a_cancel_stops_the_lane_though_its_end_is_put_off(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When Redis goes away between a cancel and its end, nothing that comes after is posted."""
    stage, job_id, key = await speaking(books)
    end, failures = WorkQueue.end, [RedisConnectionError("refused")]

    def failing(self: WorkQueue, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return end(self, *args)

    monkeypatch.setattr(WorkQueue, "end", failing)
    await books.cancellation.cancel("p", "request", "r1")
    stage.runtime.step(key)
    stage.turn()
    stopped, state = list(stage.runtime.stopped), books.state(job_id)
    stage.runtime.step(key)
    stage.turn_until(lambda: books.state(job_id) == "ended")

    assert (stopped, state) == ([key], "running")
    assert stage.runtime.stopped == [key]
    assert stream_of(books, job_id) == ["claimed", record_of(SEED, 0), "end"]


async def test_another_redis_behind_the_name(
    books: Deployment, fake_server: fakeredis.FakeServer
) -> None:
    """With an empty server in its place the lane stops and the worker registers anew."""
    stage, _, key = await speaking(books)
    fake_server.connected = False
    speak(stage, key, 1)

    fake_server.connected = True
    books.redis.flushall()
    stage.turn_until(lambda: books.redis.zcard(books.keys.lanes(QUEUE)))
    stage.runtime.release(key)
    job_id = (await books.admit("r2", seed=SEED)).job_id
    books.carrier.push(job_id)
    stage.turn_until(lambda: len(stage.runtime.submitted) == 2)

    assert stage.runtime.stopped == [key]
    assert f"rq:worker:{stage.worker_id}".encode() in books.redis.smembers("rq:workers")


async def test_drains_while_redis_is_away(
    books: Deployment, fake_server: fakeredis.FakeServer
) -> None:
    """A worker that can't reach Redis still ends after its grace period, with exit code 0."""
    stage = Stage(books.redis, books.settings, ScriptedRuntime(), drain_grace_ms=100)
    books.worker("door")
    job_id = (await books.admit("r1", seed=SEED)).job_id
    books.carrier.push(job_id)
    life = stage.run()
    stage.runtime.wait_for_lane()

    fake_server.connected = False
    stage.signals.count = 1

    assert life.wait() == 0


async def test_a_full_redis_is_like_one_that_is_away(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that Redis has no memory for wait, and are posted when there is room again."""
    stage, job_id, key = await speaking(books)
    post, refusals = WorkQueue.post, [SCRIPT_OOM, SCRIPT_OOM]

    def full(self: WorkQueue, lanes: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return post(self, lanes)

    monkeypatch.setattr(WorkQueue, "post", full)
    stage.runtime.step(key)
    stage.turn_until(lambda: record_of(SEED, 1) in stream_of(books, job_id))

    assert refusals == []


async def test_what_rq_cannot_be_shown_is_not_tried_at_every_beat(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that is full for hours fills no log; when there is room RQ's tools see it again."""
    stage = Stage(books.redis, replace(books.settings, renew_ms=0), ScriptedRuntime())
    stage.turn()
    beat, refusals = Carrier.beat, [OutOfMemoryError("command not allowed")]
    seen: list[bool] = []

    def full(self: Carrier, *, busy: bool) -> None:
        if refusals:
            raise refusals[0]
        seen.append(busy)
        beat(self, busy=busy)

    monkeypatch.setattr(Carrier, "beat", full)
    with capture_logs() as logs:
        stage.turn(20)
    refusals.clear()
    monkeypatch.setattr("shared.clock.monotonic_ms", lambda: monotonic_ms() + SHOWN_AGAIN_MS)
    stage.turn(2)

    assert [entry["event"] for entry in logs] == ["rq_record_failed"]
    assert seen == [False, False]


async def test_a_broken_rq_record_fails_no_job(books: Deployment) -> None:
    """What RQ shows is for people: a key of the wrong type there doesn't touch the speech."""
    stage = Stage(books.redis, books.settings, ScriptedRuntime())
    stage.turn()
    job_id = (await books.admit("r1", seed=SEED)).job_id
    books.carrier.push(job_id)
    books.redis.set(f"rq:wip:{QUEUE}", "not a sorted set")

    stage.turn_until(lambda: stage.runtime.submitted)
    key = stage.runtime.submitted[0].key
    stage.runtime.step(key)
    stage.runtime.end(key)
    stage.turn()

    assert books.field(job_id, "finish_reason") == "stop"
