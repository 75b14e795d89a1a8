"""The checker finds what is wrong with the books, and finds nothing wrong with right ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.books import Books, check
from cli import main
from cli.exits import NOT_STARTED, OK, REFUSED, USAGE
from tests.conftest import RedisServer
from tests.scheduler.conftest import QUEUE, Deployment, terminal


def books(deployment: Deployment) -> Books:
    return Books.read(deployment.redis, deployment.settings.namespace)


async def busy(deployment: Deployment) -> tuple[str, str]:
    """A job that runs and one that waits, each with its caller at one gateway."""
    work = deployment.worker()
    for number in range(2):
        await deployment.join(f"r{number}")
    running = deployment.claim(work)
    work.heartbeat({"in_flight": 1}, lanes=2)
    await deployment.listeners._renew_all()
    waiting = next(iter(books(deployment).waiting[QUEUE]))
    return running.job_id, waiting


async def test_books_that_balance_are_said_to(fake: Deployment) -> None:
    """Nothing is found while jobs wait and run, and nothing when they have ended."""
    deployment = fake
    work = deployment.worker()
    caller = await deployment.join("r0")
    claim = deployment.claim(work)
    work.heartbeat({"in_flight": 1}, lanes=2)
    await deployment.listeners._renew_all()

    verdict = check(deployment.redis, "t", settle_s=0)
    assert (verdict.faults, verdict.differences) == ([], [])

    work.end(claim.job_id, claim.execution, terminal())
    await caller.leave()
    work.heartbeat({"in_flight": 0}, lanes=2)
    await deployment.listeners._renew_all()

    verdict = check(deployment.redis, "t", settle_s=0)
    assert verdict.balanced
    assert verdict.books.idle


Damage = Callable[[Deployment, str, str], object]
DAMAGE: dict[str, tuple[Damage, str]] = {
    "a job in no set": (
        lambda d, running, waiting: d.redis.zrem(d.keys.waiting(QUEUE), waiting),
        "is waiting, not in the set",
    ),
    "a job in both sets": (
        lambda d, running, waiting: d.redis.zadd(d.keys.running(QUEUE), {waiting: 9e15}),
        "is in the running set",
    ),
    "a set that holds what is gone": (
        lambda d, running, waiting: d.redis.delete(d.keys.job(running)),
        "is in the running set",
    ),
    "a counter that is off": (
        lambda d, running, waiting: d.redis.hincrby(d.keys.stats(QUEUE), "admitted", 1),
        "3 is not 1 + 1 + 0",
    ),
    "a job that stands in no line": (
        lambda d, running, waiting: d.redis.zrem(d.keys.line(QUEUE, "interactive:p"), waiting),
        "in line interactive:p are []",
    ),
    "a line that has no turn": (
        lambda d, running, waiting: d.redis.delete(d.keys.ring(QUEUE)),
        "the ring has set()",
    ),
    "frames that wait and were not counted": (
        lambda d, running, waiting: d.redis.hincrby(
            d.keys.stats(QUEUE), "waiting_frames:interactive", 5
        ),
        "waiting_frames:interactive is 15 and not 10",
    ),
    "a running job counted from another moment": (
        lambda d, running, waiting: d.redis.hincrby(d.keys.stats(QUEUE), "running_since_ms", 1),
        "running_since_ms is",
    ),
    "a job noted to run alone that doesn't": (
        lambda d, running, waiting: d.redis.zadd("t:alone:" + QUEUE, {running: 9e15}),
        "are noted to run alone, and not []",
    ),
    "a job that runs alone and isn't noted": (
        lambda d, running, waiting: d.redis.hset(d.keys.job(running), "solo", "1"),
        ": [] are noted to run alone",
    ),
    "text that was kept": (
        lambda d, running, waiting: d.redis.hdel(d.keys.job(waiting), "payload"),
        "its text is gone",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_each_fault_is_found(deployment: Deployment, name: str) -> None:
    """What can't be true at any moment is a fault, with the job or the queue that has it."""
    damage, expected = DAMAGE[name]
    damage(deployment, *(await busy(deployment)))

    assert any(expected in fault for fault in books(deployment).faults())


DIFFERENCES: dict[str, tuple[Damage, str]] = {
    "a lane without a lease": (
        lambda d, running, waiting: d.worker().heartbeat({"in_flight": 2}, lanes=2),
        "w1 says 2 in flight and holds 1 leases",
    ),
    "a lease without a worker": (
        lambda d, running, waiting: d.redis.delete(d.keys.worker("w1")),
        "w1 is gone and holds 1 leases",
    ),
    "a listener without a caller": (
        lambda d, running, waiting: d.redis.zadd(d.keys.listeners(waiting), {"g1|99": 9e15}),
        "2 callers wait with g1, which has 3 listeners",
    ),
    "a caller without a job to hear of": (
        lambda d, running, waiting: d.redis.zrem(d.keys.listeners(running), "g1|1", "g1|2"),
        "has no listener",
    ),
    "a listener of a gateway that is gone": (
        lambda d, running, waiting: d.redis.delete(d.keys.gateway("g1")),
        "g1 is gone and has 2 listeners",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
async def test_each_difference_is_found_when_it_lasts(fake: Deployment, name: str) -> None:
    """What processes say of themselves is held against the books, look after look."""
    damage, expected = DIFFERENCES[name]
    damage(fake, *(await busy(fake)))

    verdict = check(fake.redis, "t", settle_s=0.3)

    assert verdict.looks > 1
    assert any(expected in difference for difference in verdict.differences)


@pytest.mark.redis
def test_the_command_ends_by_what_it_found(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 for books that balance, 1 for a fault, 4 for what can't be read; it says so."""
    arguments = ["bench", "check", "--redis-url", redis_server.url, "--namespace", "t"]

    assert main.run(arguments) == OK
    with redis_server.client() as client:
        client.sadd("t:queues", "q")
        client.hset("t:stats:q", "admitted", "1")
    assert main.run(arguments) == REFUSED
    assert "1 is not 0 + 0 + 0" in capsys.readouterr().err
    with redis_server.client() as client:
        client.hset("t:stats:q", "admitted", "many")
    assert main.run(arguments) == NOT_STARTED
    assert capsys.readouterr().err.startswith("error: can't read the books: ValueError")
    with redis_server.client() as client:
        client.set("t:stats:q", "of another type")
    assert main.run(arguments) == NOT_STARTED
    assert "WRONGTYPE" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost", "redis://localhost:port/0"])
def test_a_url_that_is_none_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so in a line."""
    assert main.run(["bench", "check", "--redis-url", url]) == USAGE
    assert capsys.readouterr().err.startswith("error: not a Redis URL (")
