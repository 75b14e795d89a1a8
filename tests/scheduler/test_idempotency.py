"""The same id, wherever and whenever it comes again: never a second generation, never an echo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from scheduler.admission import Admission
from scheduler.connections import connect_async
from scheduler.listeners import Caller, Listeners
from scheduler.results import Results
from scheduler.subscriptions import EventReader
from shared.messages import End, Event
from tests.conftest import RedisServer, until
from tests.scheduler.conftest import Deployment, terminal
from tests.scheduler.hearing import heard, shape

pytestmark = pytest.mark.redis


@dataclass
class Gateways:
    """Two gateway processes' sides of one queue, and its worker's."""

    deployment: Deployment
    first: Listeners
    second: Listeners

    async def both_join(self, request_id: str) -> tuple[Caller, Caller]:
        """The same request at both, at the same moment."""
        one, other = await asyncio.gather(
            *(self.deployment.join(request_id, at=each) for each in (self.first, self.second))
        )
        return one, other


@pytest.fixture
async def gateways(real: Deployment, redis_server: RedisServer) -> AsyncIterator[Gateways]:
    async def gateway(name: str) -> tuple[Listeners, EventReader, Redis]:
        client = connect_async(redis_server.url, timeout_s=1.5)
        reader = EventReader(client, real.settings.namespace, name)
        admission = Admission(client, real.settings)
        results = Results(client, real.settings.namespace)
        listeners = Listeners(client, real.settings, reader, admission, results, name)
        reader.start()
        listeners.start()
        return listeners, reader, client

    parts = [await gateway("gw-1"), await gateway("gw-2")]
    yield Gateways(real, parts[0][0], parts[1][0])
    for listeners, reader, client in parts:
        await listeners.close()
        await reader.close()
        await client.aclose()


async def test_two_gateways_at_the_same_moment_are_one_generation(gateways: Gateways) -> None:
    """One admits, the other attaches, and both callers hear the whole answer alike."""
    d = gateways.deployment
    for number in range(10):
        work = d.worker()
        one, other = await gateways.both_join(f"r{number}")
        kinds = {one.admitted.kind, other.admitted.kind}
        assert (kinds, one.job_id) == ({"admitted", "attached"}, other.job_id)

        claim = d.claim(work)
        d.post(work, claim, 0, 1)
        work.end(claim.job_id, claim.execution, terminal())
        told = [await heard(one), await heard(other)]

        assert shape(told[0]) == ["Claimed", 0, 1, "End"]
        assert told[0] == told[1]
        assert work.claim("nothing-more") is None
        await one.leave()
        await other.leave()


async def test_of_two_gateways_one_may_leave(gateways: Gateways) -> None:
    """The job goes on for the caller who stays."""
    d = gateways.deployment
    work = d.worker()
    one, other = await gateways.both_join("r")
    claim = d.claim(work)
    await one.leave()

    assert d.post(work, claim, 0) == ["ok"]
    work.end(claim.job_id, claim.execution, terminal())
    assert shape(await heard(other)) == ["Claimed", 0, "End"]


@pytest.mark.parametrize("claimed", [False, True], ids=["queued", "running"])
@pytest.mark.parametrize("through", ["first", "second"])
async def test_a_retry_after_a_drop_speaks(gateways: Gateways, through: str, claimed: bool) -> None:
    """Though its worker hasn't even noticed yet that nobody listens: the retry is a new generation,
    through either gateway, and hears nothing of the old one's end."""
    d = gateways.deployment
    work = d.worker()
    dropped = await d.join("r", at=gateways.first)
    old = d.claim(work) if claimed else None
    await dropped.leave()

    retry = await d.join("r", at=getattr(gateways, through))
    new = d.claim(work)
    assert (retry.admitted.kind, new.job_id) == ("admitted", retry.job_id)
    assert retry.job_id != dropped.job_id

    d.post(work, new, 0)
    if old is not None:
        assert d.post(work, old, 0) == ["cancelled"]
        assert work.end(old.job_id, old.execution, terminal("cancelled")).verdict == "ended"
    d.post(work, new, 1)
    work.end(new.job_id, new.execution, terminal())

    events = await heard(retry)
    assert shape(events) == ["Claimed", 0, 1, "End"]
    assert last(events).finish_reason == "stop"
    third = await d.join("r", at=gateways.second)
    assert (third.admitted.kind, third.job_id) == ("replay", retry.job_id)


async def test_a_retry_that_comes_before_its_drop_is_noticed_attaches(gateways: Gateways) -> None:
    """The old connection's end then costs the new one nothing."""
    d = gateways.deployment
    work = d.worker()
    dropped = await d.join("r", at=gateways.first)
    claim = d.claim(work)
    retry = await d.join("r", at=gateways.second)
    await dropped.leave()

    assert (retry.admitted.kind, retry.job_id) == ("attached", dropped.job_id)
    assert d.post(work, claim, 0) == ["ok"]
    work.end(claim.job_id, claim.execution, terminal())
    assert last(await heard(retry)).finish_reason == "stop"


async def test_a_killed_gateways_job_is_no_echo_either(gateways: Gateways) -> None:
    """Its memberships lapse, the reaper abandons the job, and the same id speaks again."""
    d = gateways.deployment
    work = d.worker()
    await d.admit("r", listener="gw-dead|1")
    old = d.claim(work)

    def abandoned() -> bool:
        work.renew([(old.job_id, old.execution)])
        d.reaper.reap()
        return d.field(old.job_id, "cancel") == "abandoned"

    await until(abandoned)
    work = d.worker()
    retry = await d.join("r", at=gateways.first)

    assert retry.admitted.kind == "admitted"
    assert work.end(old.job_id, old.execution, terminal("cancelled")).verdict == "ended"
    new = d.claim(work)
    work.end(new.job_id, new.execution, terminal())
    assert last(await heard(retry)).finish_reason == "stop"


def last(events: list[Event]) -> End:
    end = events[-1]
    assert isinstance(end, End)
    return end
