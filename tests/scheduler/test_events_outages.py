"""Callers still hear of their jobs after Redis was away, lost things, or had its clock put back."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from scheduler.wakes import START
from shared.errors import SpeechError
from shared.messages import Claimed, FrameRecord
from tests.conftest import RedisServer, until
from tests.scheduler.conftest import Deployment, terminal
from tests.scheduler.hearing import heard, shape


async def test_a_gateway_hears_again_after_redis_restarts(
    real: Deployment, redis_server: RedisServer
) -> None:
    """Redis away and back with its file: the reader goes on by itself and nothing is missed."""
    real.reader.start()
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)

    with capture_logs() as logs:
        redis_server.write_out()
        redis_server.stop(kill=True)
        await until(lambda: any(line["event"] == "event_reader_lost_redis" for line in logs))
    redis_server.start()
    real.post(work, claim, 0)

    event = await asyncio.wait_for(caller.next_event(), 20)
    assert isinstance(event, FrameRecord)
    await caller.leave()
    await real.reader.close()


async def test_a_job_that_redis_lost_is_an_error_not_a_wait(real: Deployment) -> None:
    """When another Redis stands behind the name, waiting callers get a code, not silence."""
    real.change(listener_renew_ms=50)
    real.reader.start()
    real.listeners.start()
    real.worker()
    caller = await real.join("r1")

    await real.aredis.flushall()

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(caller.next_event(), 20)
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_a_gateway_that_was_silent_too_long_answers_its_callers(real: Deployment) -> None:
    """Callers whose job was abandoned while their gateway was stopped hear of it, with a code."""
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)
    real.change(listener_renew_ms=50)

    def abandoned() -> bool:
        work.renew([(claim.job_id, claim.execution)])
        return real.reap().abandoned == 1

    await until(abandoned)
    real.reader.start()
    real.listeners.start()

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await heard(caller)
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_redis_away_is_a_code_and_recovers(
    real: Deployment, redis_server: RedisServer
) -> None:
    """Every call of the gateway's side says queue_unavailable while Redis is away."""
    redis_server.stop(kill=True)
    for call in (
        real.join("r1"),
        real.cancellation.cancel("p", "request", "r1"),
        real.results.find("p", "r1"),
        real.load.snapshot(),
    ):
        with pytest.raises(SpeechError, match="queue_unavailable"):
            await call
    redis_server.start()

    real.worker()
    assert (await real.join("r1")).admitted.kind == "admitted"


async def test_a_gateway_renews_as_soon_as_redis_is_back(
    real: Deployment, redis_server: RedisServer
) -> None:
    """However long its rounds are: those who wait with it may lapse a lease later."""
    real.change(listener_renew_ms=600_000, listener_ttl_ms=60_000)
    redis_server.stop()
    with capture_logs() as logs:
        real.listeners.start()
        await until(lambda: any(line["event"] == "redis_away" for line in logs))
    redis_server.start()

    await until(lambda: real.redis.exists(real.keys.gateway("g1")))
    await real.listeners.close()


async def test_redis_s_clock_put_back_makes_nobody_deaf(fake: Deployment) -> None:
    """After an hour's jump back, a gateway that had heard of jobs before hears of the next ones,
    though the ids in its new stream are lower."""
    fake.reader.start()
    for step in (-3_600_000, 0):
        work = fake.worker()
        caller = await fake.join(f"r{step}")
        claim = fake.claim(work)
        fake.post(work, claim, 0)
        work.end(claim.job_id, claim.execution, terminal())
        assert shape(await heard(caller)) == ["Claimed", 0, "End"]
        await caller.leave()
        fake.redis.delete(fake.keys.wake("g1"))  # as a minute without news does
        await until(lambda: fake.reader.wakes.position == START)
        fake.advance_ms(step)
    await fake.reader.close()


async def test_a_stream_that_began_anew_is_read_from_its_start(fake: Deployment) -> None:
    """Also when it came and went between two looks."""
    fake.reader.wakes.position = b"99999999999999-0"
    fake.worker()
    caller = await fake.join("r1")
    fake.claim(fake.worker())
    fake.reader.start()

    assert isinstance(await asyncio.wait_for(caller.next_event(), 10), Claimed)
    await fake.reader.close()


async def test_who_lapsed_beside_another_hears_the_end_once_renewed(
    listening: Deployment,
) -> None:
    """A gateway that was silent while a job went on for another's caller was told nothing of it:
    its own caller hears the rest as soon as it renews, and not at its deadline.
    """
    work = listening.worker()
    caller = await listening.join("r1")
    await listening.admit("r1", listener="g2|1")
    claim = listening.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 10), Claimed)
    listening.redis.zrem(listening.keys.listeners(claim.job_id), caller.name)
    listening.redis.hset(listening.keys.job(claim.job_id), "gateways", "g2")  # as the reaper does
    listening.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())
    caller.subscription.news = False  # whatever it was told before

    await listening.listeners._renew_all()

    assert shape(await asyncio.wait_for(heard(caller), 10)) == [0, "End"]
    await caller.leave()
