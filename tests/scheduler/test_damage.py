"""Records that somebody damaged: what they stand for is lost, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.books import Books
from tests.scheduler.conftest import QUEUE, Deployment

Damage = Callable[[Deployment, str], object]

DAMAGES: dict[str, Damage] = {
    "gone": lambda d, key: d.redis.delete(key),
    "no hash": lambda d, key: d.redis.set(key, "junk"),
    "no payload": lambda d, key: d.redis.hdel(key, "payload"),
    "no principal": lambda d, key: d.redis.hdel(key, "principal"),
    "no deadline": lambda d, key: d.redis.hdel(key, "deadline_ms"),
    "deadline in words": lambda d, key: d.redis.hset(key, "deadline_ms", "soon"),
    "attempt in words": lambda d, key: d.redis.hset(key, "attempt", "\x00"),
    "frames in words": lambda d, key: d.redis.hset(key, "frames", "many"),
    "no line": lambda d, key: d.redis.hdel(key, "line"),
    "a line of no class": lambda d, key: d.redis.hset(key, "line", "p"),
    "budget in words": lambda d, key: d.redis.hset(key, "budget", "plenty"),
    "another state": lambda d, key: d.redis.hset(key, "state", "dreaming"),
}

pytestmark = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def counts(deployment: Deployment) -> tuple[int, int, int]:
    """Waiting, running, and those that the counters say are neither admitted nor ended."""
    waiting = int(deployment.redis.zcard(deployment.keys.waiting(QUEUE)))
    running = int(deployment.redis.zcard(deployment.keys.running(QUEUE)))
    stats = deployment.keys.stats(QUEUE)
    admitted, ended = (
        int(value or 0) for value in deployment.redis.hmget(stats, "admitted", "ended")
    )
    return waiting, running, admitted - ended


async def test_a_damaged_waiting_job_holds_up_nobody(fake: Deployment, damage: Damage) -> None:
    """The claim takes the next job, and the books balance without the damaged one."""
    work = fake.worker()
    first = await fake.admit("r1")
    second = await fake.admit("r2")
    damage(fake, fake.keys.job(first.job_id))

    assert fake.claim(work).job_id == second.job_id

    assert counts(fake) == (0, 1, 1)
    assert (await fake.load.snapshot()).queue(QUEUE).in_flight == 1


async def test_a_damaged_job_is_reaped(fake: Deployment, damage: Damage) -> None:
    """Waiting or running, it leaves the queue at the next reap, and RQ forgets it."""
    work = fake.worker()
    running = await fake.admit("r1")
    claim = fake.claim(work)
    waiting = await fake.admit("r2")
    for job in (running, waiting):
        fake.carrier.push(job.job_id)
        damage(fake, fake.keys.job(job.job_id))

    fake.reap()

    assert counts(fake) == (0, 0, 0)
    assert fake.post(work, claim, 0) == ["lost"]
    assert not fake.redis.keys("t:line:*") + fake.redis.keys("t:ring:*")
    fake.advance_ms(2100)
    fake.reap()
    assert not fake.redis.keys("rq:job:*")


async def test_a_damaged_record_breaks_no_call(fake: Deployment, damage: Damage) -> None:
    """Its worker, its callers and whoever uses its ids get an answer, before any reap."""
    work = fake.worker()
    job = await fake.admit("r1", cancellation_id="t1")
    claim = fake.claim(work)
    damage(fake, fake.keys.job(job.job_id))

    assert set(work.renew([(claim.job_id, claim.execution)])) <= {"ok", "lost"}
    assert set(fake.post(work, claim, 0)) <= {"ok", "lost"}
    assert work.hand_back(claim.job_id, claim.execution) == "lost"
    await fake.listeners._leave(job.job_id, "g1|1")
    assert (await fake.cancellation.cancel("p", "turn", "t1")).hits == ()
    again = await fake.admit("r1", listener="g1|2")

    assert again.kind == "admitted"
    assert again.job_id != job.job_id


async def test_no_place_in_line_is_taken_up_for_ever(fake: Deployment, damage: Damage) -> None:
    """Whose a damaged job was may not be known any more; the lines and the sums are right again."""
    work = fake.worker()
    damaged = await fake.admit("r1")
    await fake.admit("r2")
    damage(fake, fake.keys.job(damaged.job_id))
    fake.reap()
    assert Books.read(fake.redis, "t").faults() == []

    fake.claim(work)

    assert not fake.redis.keys("t:line:*") + fake.redis.keys("t:ring:*")
    assert Books.read(fake.redis, "t").faults() == []
