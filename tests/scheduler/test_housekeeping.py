"""What is over leaves nothing behind: every key runs out, whatever became of what it was for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from shared.errors import SpeechError
from tests.conftest import until
from tests.scheduler.conftest import QUEUE, Deployment, terminal

HOUR_MS = 3_600_000
STAYS = {f"t:stats:{QUEUE}", "t:queues", "t:reaper", "rq:queues"}
"""Per queue its counters, per deployment the names of its queues and the reaper's clock."""


def keys(deployment: Deployment) -> set[str]:
    found: Any = deployment.redis.keys("*")
    return {key.decode() for key in found}


async def live_through_everything(d: Deployment) -> None:
    """Jobs that end in every way there is, callers that come and go, cancels of nothing."""
    work = d.worker(lanes=4)
    await d.listeners._renew_all()
    d.carrier.birth("w1")

    for number, reason in enumerate(("stop", "length", "error", "cancelled", "timeout")):
        admitted = await d.admit(f"ended{number}", cancellation_id="turn", timeout_ms=60_000)
        d.carrier.push(admitted.job_id)
        claim = d.claim(work)
        d.carrier.started(claim.job_id, claim.job_id)
        d.post(work, claim, 0, 1)
        work.end(claim.job_id, claim.execution, terminal(reason))
    with suppress(SpeechError):
        await d.admit("ended0")  # a replay

    await d.admit("cancelled", priority="batch")
    await d.cancellation.cancel("p", "request", "cancelled")
    await d.cancellation.cancel("p", "turn", "nothing")
    await d.cancellation.cancel("p", "request", "nothing")

    left = await d.join("left")
    await left.leave()
    running = await d.join("left-running", cancellation_id="turn2")
    claim = d.claim(work)
    await running.leave()
    work.end(claim.job_id, claim.execution, terminal("cancelled"))

    returned = await d.admit("returned", principal="q")
    claim = d.claim(work)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    claim = d.claim(work)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    assert d.state(returned.job_id) == "ended"

    await d.admit("overdue", timeout_ms=100, cancellation_id="turn3")
    await d.admit("abandoned-by-its-gateway", cancellation_id="turn4")
    lost = await d.admit("damaged", cancellation_id="turn5", principal="r")
    d.redis.hdel(d.keys.job(lost.job_id), "payload")


async def test_every_key_runs_out(fake: Deployment) -> None:
    """However jobs ended, and though their gateway and their worker were gone without a word."""
    await live_through_everything(fake)
    assert len(keys(fake)) > 40

    for _ in range(6):
        fake.advance_ms(2500)
        fake.reaper.reap()
    fake.advance_ms(2 * HOUR_MS)
    for _ in range(31):  # so often it looks for dead workers of RQ's
        fake.reaper.reap()

    assert keys(fake) <= STAYS


async def test_what_nobody_ends_runs_out_too(fake: Deployment) -> None:
    """With no reaper left, what lives goes an hour after its deadline; sets of ids alone stay."""
    work = fake.worker(lanes=4)
    await fake.admit("waiting", cancellation_id="turn")
    await fake.admit("running", cancellation_id="turn")
    fake.claim(work)

    fake.advance_ms(HOUR_MS + 11_000)

    sets = {fake.keys.waiting(QUEUE), fake.keys.running(QUEUE), fake.keys.ring(QUEUE)}
    sets |= {fake.keys.line(QUEUE, "interactive:p"), fake.keys.lanes(QUEUE), fake.keys.workers}
    assert keys(fake) <= STAYS | sets
    for _ in range(3):
        fake.reaper.reap()
    assert keys(fake) - {fake.keys.ended(QUEUE)} <= STAYS


@pytest.mark.redis
async def test_every_key_has_a_time_or_is_kept_by_the_living(real: Deployment) -> None:
    """On a real server, too: once everything is over, only what is known to stay has no expiry."""
    await live_through_everything(real)

    def settled() -> bool:
        real.reaper.reap()
        return not real.redis.keys("rq:job:*")

    await until(settled, 20)
    real.worker().farewell()

    timeless = {key for key in keys(real) if real.redis.pttl(key) == -1}

    assert timeless - STAYS == {"t:retained", "rq:workers", f"rq:workers:{QUEUE}"}
