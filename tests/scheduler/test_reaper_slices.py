"""Reaping in slices: nothing does much at once, and a round still looks at every job."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from scheduler.carrier import Carrier
from scheduler.queue import Claim
from scheduler.reaper import FORGET_EVERY, Reaper
from tests.scheduler.conftest import QUEUE, Deployment


async def test_a_reaper_with_lanes_to_serve_does_little_at_once(deployment: Deployment) -> None:
    """Of many hints that were lost and many jobs that ended in the queue, a few go in each pass."""
    few = Reaper(deployment.redis, deployment.settings, most=2)
    deployment.worker(lanes=4)
    for number in range(3):
        await deployment.admit(f"lost{number}", timeout_ms=60_000, listener=f"g1|{number}")
        deployment.redis.zadd(deployment.keys.ended(QUEUE), {f"t-{number}": 1})

    passes = [next(iter(few.reap())) for _ in range(3)]

    assert [(each.pushed, each.swept) for each in passes] == [(2, 2), (1, 1), (0, 0)]


async def admit_many(deployment: Deployment, count: int, **options: Any) -> list[str]:
    return [
        (await deployment.admit(f"r{number}", listener=f"g1|{number}", **options)).job_id
        for number in range(count)
    ]


def in_pieces(deployment: Deployment) -> None:
    """Have Redis hand over a set piece by piece however small it is."""
    for name in ("zset-max-ziplist-entries", "zset-max-listpack-entries"):
        if name in deployment.redis.config_get("zset-max-*"):
            deployment.redis.config_set(name, 0)


@pytest.mark.redis
async def test_a_round_looks_at_every_job_in_slices(real: Deployment) -> None:
    """However the jobs are sliced, one pass expires, abandons and hints what there is to."""
    in_pieces(real)
    sliced = Reaper(real.redis, real.settings, slice_=3)
    work = real.worker(lanes=20)
    running = await admit_many(real, 8, timeout_ms=30_000, principal="running")
    for _ in running:
        real.claim(work)
    overdue = await admit_many(real, 5, timeout_ms=30_000, principal="overdue")
    waiting = await admit_many(real, 8, timeout_ms=30_000, principal="waiting")
    left = [running[2], waiting[3]]
    for job_id in {*running, *waiting} - {*left}:
        real.redis.zadd(real.keys.listeners(job_id), {"g1|1": 9e15})
    real.redis.zadd(real.keys.running(QUEUE), dict.fromkeys(running, 9e15))
    real.redis.delete(*map(real.keys.listeners, left))
    sliced.reap()  # after a silence: nothing lapses yet
    real.redis.hset(real.keys.reaper, "hold_until_ms", 0)
    real.redis.delete(real.carrier.list_key)
    for job_id in overdue:
        real.redis.hset(real.keys.job(job_id), "deadline_ms", 1)

    report = next(iter(sliced.reap()))

    assert (report.expired, report.abandoned, report.pushed) == (5, 2, 7)
    assert report.calls >= (len(running) + len(waiting)) // 3
    assert {real.state(job_id) for job_id in (*overdue, waiting[3])} == {"ended"}
    assert real.field(running[2], "cancel") == "abandoned"
    assert sorted(real.listed()) == sorted(set(waiting) - set(left))
    assert not sliced.unfinished


@pytest.mark.redis
async def test_no_call_looks_at_more_than_a_slice(real: Deployment) -> None:
    """What one call costs doesn't grow with the jobs, and whoever is busy makes one at a time."""
    in_pieces(real)
    busy = Reaper(real.redis, real.settings, slice_=10, calls=1)
    real.worker(lanes=100)
    await admit_many(real, 100, timeout_ms=60_000, max_frames=1)
    real.redis.lpush(real.carrier.list_key, *(str(number) for number in range(100)))

    def records_read() -> int:
        return int(real.redis.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

    looks: list[int] = []
    while not looks or busy.unfinished:
        before = records_read()
        assert [report.calls for report in busy.reap()] == [1]
        looks.append(records_read() - before)

    assert sum(looks) >= 100
    assert max(looks) < 40
    assert not busy.unfinished


@pytest.mark.redis
async def test_lost_hints_among_many_are_made_up_for_without_reading_the_list(
    real: Deployment,
) -> None:
    """There are as many hints as jobs again, which is enough: any hint leads to the next job."""
    in_pieces(real)
    sliced = Reaper(real.redis, real.settings, slice_=5)
    work = real.worker(lanes=100)
    jobs = await admit_many(real, 30, timeout_ms=60_000, max_frames=1)
    for job_id in jobs:
        real.carrier.push(job_id)
    sliced.reap()  # the first looks for the dead as well
    real.redis.lrem(real.carrier.list_key, 1, jobs[3])
    real.redis.lrem(real.carrier.list_key, 1, jobs[17])
    real.redis.config_resetstat()

    pushed = [next(iter(sliced.reap())).pushed for _ in range(2)]

    assert pushed == [2, 0]
    assert "cmdstat_lrange" not in real.redis.info("commandstats")
    claimed = set()
    while (hint := real.carrier.pull(None)) is not None:
        claim = work.claim(uuid4().hex, hint=hint)
        if isinstance(claim, Claim):
            claimed.add(claim.job_id)
    assert claimed == set(jobs)


@pytest.mark.redis
async def test_the_dead_are_looked_for_in_some_rounds(
    real: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many slices a round has: it reads all that RQ shows."""
    in_pieces(real)
    looks: list[str] = []
    monkeypatch.setattr(Carrier, "forget_the_dead", lambda carrier: looks.append("look"))
    busy = Reaper(real.redis, real.settings, slice_=1, calls=1)
    real.worker(lanes=50)
    await admit_many(real, 100, timeout_ms=60_000, max_frames=1)

    busy.reap()
    passes = 1
    while busy.unfinished:
        busy.reap()
        passes += 1

    assert passes > FORGET_EVERY
    assert looks == ["look"]


async def test_after_a_discard_the_sums_are_right_again(deployment: Deployment) -> None:
    """Also where jobs are too many for one call: they are added up, and looked at in slices."""
    sliced = Reaper(deployment.redis, deployment.settings, slice_=2)
    deployment.worker(lanes=4)
    jobs = await admit_many(deployment, 6, timeout_ms=60_000)
    deployment.redis.delete(deployment.keys.job(jobs[0]))

    looked = [next(iter(sliced.reap())).calls for _ in range(2)]

    stats: Any = deployment.redis.hgetall(deployment.keys.stats(QUEUE))
    assert stats[b"waiting_frames:interactive"] == b"50"
    assert min(looked) > 1


async def test_what_else_is_damaged_is_left_out_of_the_sums(deployment: Deployment) -> None:
    """Jobs are added up by their records, of which more than one may be broken."""
    sliced = Reaper(deployment.redis, deployment.settings, slice_=2)
    work = deployment.worker(lanes=4)
    jobs = await admit_many(deployment, 8, timeout_ms=60_000)
    running = deployment.claim(work).job_id
    waiting = [job for job in jobs if job != running]
    deployment.redis.delete(deployment.keys.job(waiting[0]))
    sliced.reap()
    deployment.redis.hset(deployment.keys.job(running), "attempt_ms", "soon")
    deployment.redis.hset(deployment.keys.job(waiting[1]), "budget", "many")
    deployment.redis.hdel(deployment.keys.job(waiting[2]), "line")

    for _ in range(2):
        sliced.reap()

    stats: Any = deployment.redis.hgetall(deployment.keys.stats(QUEUE))
    assert stats[b"waiting_frames:interactive"] == b"40"
    assert (stats[b"running_frames"], stats[b"running_since_ms"]) == (b"0", b"0")
