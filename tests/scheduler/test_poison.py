"""Loops that must go on for ever meet what they can't read, and a Redis that refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.__main__ import run
from shared.errors import SpeechError
from shared.messages import Claimed, FrameRecord
from shared.settings import SchedulerSettings, SidePortSettings
from tests.conftest import RedisServer, until
from tests.scheduler.conftest import QUEUE, Deployment, terminal
from tests.scheduler.hearing import heard, outlasts, shape


@pytest.fixture
async def listening(real: Deployment) -> AsyncIterator[Deployment]:
    """A gateway's side that reads and renews, over a real Redis."""
    real.change(listener_renew_ms=50)
    real.reader.start()
    real.listeners.start()
    yield real
    await real.listeners.close()
    await real.reader.close()


@pytest.mark.parametrize(
    "entry",
    [
        {"f": ""},
        {"f": "short"},
        {"f": "longer" * 1000},
        {"k": "frame", "i": "0", "codes": "c", "pcm": "p"},
        {"k": "claimed", "attempt": "1", "worker": "w1", "queue_wait_ms": "1"},
        {"k": "end", "reason": b"\xff"},
    ],
)
async def test_an_unreadable_event_ends_its_own_callers_wait(
    listening: Deployment, entry: dict[Any, Any]
) -> None:
    """The caller of that job gets a code; the reader lives and the other caller hears all."""
    work = listening.worker()
    first = await listening.join("r1")
    second = await listening.join("r2")
    claims = [listening.claim(work), listening.claim(work)]
    for caller in (first, second):
        assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)
    listening.redis.xadd(listening.keys.events(claims[0].job_id), entry)
    for claim in claims:
        listening.post(work, claim, 0)

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(first.next_event(), 20)
    event = await asyncio.wait_for(second.next_event(), 20)

    assert isinstance(event, FrameRecord)
    assert listening.reader.alive


@pytest.mark.redis
async def test_what_is_no_stream_ends_its_own_callers_wait(real: Deployment) -> None:
    """Of a job that has ended, which no reaper looks at any more: its caller gets a code at once,
    and the other hears all."""
    real.reader.start()
    work = real.worker()
    callers = [await real.join(name) for name in ("r1", "r2")]
    claims = [real.claim(work) for _ in callers]
    for caller in callers:
        assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)
    work.end(claims[0].job_id, claims[0].execution, terminal())
    real.redis.set(real.keys.events(claims[0].job_id), "junk")
    callers[0].subscription.lose()

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(callers[0].next_event(), 20)
    real.post(work, claims[1], 0)
    work.end(claims[1].job_id, claims[1].execution, terminal())
    assert shape(await heard(callers[1])) == [0, "End"]
    await real.reader.close()


async def test_unreadable_frames_end_the_job_that_they_belong_to(deployment: Deployment) -> None:
    """A worker that takes over a job whose frames can't be read refuses it and takes the next."""
    work = deployment.worker()
    first = await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    work.hand_back(claim.job_id, claim.execution)
    second = await deployment.admit("r2")
    deployment.redis.xadd(deployment.keys.events(first.job_id), {"f": "short"})

    assert deployment.claim(work).job_id == second.job_id

    assert deployment.field(first.job_id, "failure_code") == "internal_error"


UNREADABLE = [
    *("{", "[]", "nothing", "1|{", "1|[1]", '1|{"state": []}', '1|{"utilization": NaN}'),
    *('1|{"refusal": "no"}', '1|{"refusal": {"pending_phases": 5}}'),
]


@pytest.mark.parametrize("document", UNREADABLE)
async def test_an_unreadable_worker_document_hides_that_worker_alone(
    deployment: Deployment, document: str
) -> None:
    """What one worker writes of itself can't take the load from everybody's sight."""
    deployment.worker("w1")
    deployment.worker("w2")
    deployment.redis.set(deployment.keys.worker("w1"), document)

    snapshot = await deployment.load.snapshot()

    assert [worker["worker_id"] for worker in snapshot.workers] == ["w2"]


async def test_memberships_hold_at_the_memory_limit(listening: Deployment) -> None:
    """Redis is full for longer than a membership lasts: who waits goes on being a listener."""
    work = listening.worker()
    await listening.join("r1")
    claim = listening.claim(work)
    used = int(listening.redis.info("memory")["used_memory"])
    listening.redis.config_set("maxmemory", used // 2)

    await outlasts(listening, work, claim)

    assert listening.post(work, claim, 0) == ["ok"]


async def test_renewal_and_reading_survive_errors_of_redis(listening: Deployment) -> None:
    """Whatever Redis answers for a while, both loops go on by themselves afterwards."""
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)
    broken = listening.keys.wake("g1")
    with capture_logs() as logs:
        listening.redis.delete(broken)
        listening.redis.set(broken, "of another type")
        listening.redis.replicaof("127.0.0.1", "1")  # takes no writes any more
        failures = {"event_reader_lost_redis", "redis_away"}
        await until(lambda: failures <= {entry["event"] for entry in logs})
        listening.redis.replicaof("no", "one")
        listening.redis.delete(broken)
        await until(lambda: "redis_back" in {entry["event"] for entry in logs})

    causes = [entry["error"] for entry in logs if entry["event"] == "redis_away"]
    assert len(causes) == 1
    assert "read only replica" in causes[0]

    work.renew([(claim.job_id, claim.execution)])
    listening.redis.zadd(listening.keys.listeners(claim.job_id), {"g1|1": 1})
    await until(lambda: scored(listening, claim.job_id) > 1)
    listening.post(work, claim, 0)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 20), FrameRecord)


def scored(deployment: Deployment, job_id: str) -> float:
    score: Any = deployment.redis.zscore(deployment.keys.listeners(job_id), "g1|1")
    return float(score or 0)


async def test_who_left_during_an_outage_is_not_waited_for(
    listening: Deployment, redis_server: RedisServer
) -> None:
    """The departure is said when Redis is back: the job needn't run until its listeners lapse."""
    listening.change(listener_ttl_ms=60_000)
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    redis_server.stop()
    await caller.leave()
    redis_server.start()

    await until(lambda: listening.field(claim.job_id, "cancel") == "abandoned")


async def test_a_lapsed_listener_may_still_renew_when_another_leaves(fake: Deployment) -> None:
    """After an absence of Redis the first to leave doesn't abandon the job for the others."""
    fake.worker()
    first = await fake.admit("r1", listener="g1|1", timeout_ms=30_000)
    assert (await fake.admit("r1", listener="g2|1", timeout_ms=30_000)).kind == "attached"
    fake.advance_ms(fake.settings.listener_ttl_ms + 1000)

    await fake.listeners.departures.say(first.job_id, "g1|1")

    assert fake.state(first.job_id) == "waiting"


async def test_a_hint_that_comes_after_its_jobs_end_leaves_no_record(
    deployment: Deployment,
) -> None:
    """RQ's record of a late hint goes when the hint is pulled, whatever else is claimed then."""
    work = deployment.worker()
    await deployment.admit("r1")
    deployment.carrier.birth("w1")
    for late in ("late-1", "late-2"):
        deployment.carrier.push(late)
    claim = deployment.claim(work, hint=deployment.carrier.pull(None))
    deployment.carrier.started(claim.job_id, "late-1")
    deployment.carrier.drop(str(deployment.carrier.pull(None)))

    assert deployment.redis.keys("rq:job:late*") == []
    assert deployment.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0


@pytest.mark.parametrize("id_", [b"\xff\xfe", b"a b", b"a:b", b"x" * 100_000, b""])
async def test_an_id_that_cannot_be_ours_is_refused(deployment: Deployment, id_: bytes) -> None:
    """Whatever lies in RQ's list, it is taken off, and the next id is handed out."""
    deployment.redis.rpush(deployment.carrier.list_key, id_)
    deployment.carrier.push("t-1")

    assert deployment.carrier.pull(None) is None

    assert deployment.carrier.pull(None) == "t-1"
    assert deployment.redis.lrange(f"rq:queue:{QUEUE}:intermediate", 0, -1) == [b"t-1"]


async def test_the_scheduler_lives_through_errors_of_redis(
    real: Deployment, redis_server: RedisServer
) -> None:
    """A reap that fails, whatever for, is tried again at the next interval."""
    real.worker()
    admitted = await real.admit("r1")
    stop = threading.Event()
    queue = replace(real.settings, redis_url=redis_server.url)
    settings = SchedulerSettings(queue, SidePortSettings("127.0.0.1", 0), "info")
    thread = threading.Thread(target=run, args=(settings, stop), daemon=True)
    real.redis.set(
        f"rq:queue:{QUEUE}:intermediate", "of another type"
    )  # no script of ours meets it
    real.redis.zadd(real.keys.ended(QUEUE), {"t-gone": 1})
    with capture_logs() as logs:
        thread.start()
        await until(lambda: any(entry["event"] == "reap_failed" for entry in logs))
        assert thread.is_alive()
        real.redis.delete(f"rq:queue:{QUEUE}:intermediate")

    await until(lambda: real.listed() == [admitted.job_id])
    stop.set()
    thread.join(timeout=5)
