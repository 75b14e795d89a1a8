"""Records that somebody damaged: what they stand for is lost, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.books import Books
from scheduler.queue import Claim, LanePost, WorkQueue
from tests.scheduler.conftest import QUEUE, Deployment, frame, terminal

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
    "budget a fraction": lambda d, key: d.redis.hset(key, "budget", "1.5"),
    "a deadline of many digits": lambda d, key: d.redis.hset(key, "deadline_ms", "9" * 40),
    "another state": lambda d, key: d.redis.hset(key, "state", "dreaming"),
}

damaged = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def counts(deployment: Deployment) -> tuple[int, int, int]:
    """Waiting, running, and those that the counters say are neither admitted nor ended."""
    waiting = int(deployment.redis.zcard(deployment.keys.waiting(QUEUE)))
    running = int(deployment.redis.zcard(deployment.keys.running(QUEUE)))
    stats = deployment.keys.stats(QUEUE)
    admitted, ended = (
        int(value or 0) for value in deployment.redis.hmget(stats, "admitted", "ended")
    )
    return waiting, running, admitted - ended


@damaged
async def test_a_damaged_waiting_job_holds_up_nobody(fake: Deployment, damage: Damage) -> None:
    """The claim takes the next job, and the books balance without the damaged one."""
    work = fake.worker()
    first = await fake.admit("r1")
    second = await fake.admit("r2")
    damage(fake, fake.keys.job(first.job_id))

    assert fake.claim(work).job_id == second.job_id

    assert counts(fake) == (0, 1, 1)
    assert (await fake.load.snapshot()).queue(QUEUE).in_flight == 1


@damaged
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


@damaged
async def test_a_damaged_record_borrows_nothing(fake: Deployment, damage: Damage) -> None:
    """What the record that was looked at before it holds makes no damaged one whole."""
    fake.worker()
    jobs = [(await fake.admit(f"r{number}")).job_id for number in range(3)]
    damage(fake, fake.keys.job(jobs[1]))

    fake.reap()

    left: Any = fake.redis.zrange(fake.keys.waiting(QUEUE), 0, -1)
    assert [job.decode() for job in left] == [jobs[0], jobs[2]]


@damaged
async def test_a_damaged_record_breaks_no_call(fake: Deployment, damage: Damage) -> None:
    """Its worker, its callers and whoever uses its ids get an answer, before any reap."""
    work = fake.worker()
    job = await fake.admit("r1", cancellation_id="t1")
    claim = fake.claim(work)
    damage(fake, fake.keys.job(job.job_id))

    assert set(work.renew([(claim.job_id, claim.execution)])) <= {"ok", "lost"}
    assert set(fake.post(work, claim, 0)) <= {"ok", "lost"}
    assert work.hand_back(claim.job_id, claim.execution) == "lost"
    await fake.listeners.departures.say(job.job_id, "g1|1")
    assert (await fake.cancellation.cancel("p", "turn", "t1")).hits == ()
    again = await fake.admit("r1", listener="g1|2")

    assert again.kind == "admitted"
    assert again.job_id != job.job_id


@damaged
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


def put_junk(deployment: Deployment, key: str) -> None:
    """What no rule puts there: a string, or a list where a string belongs."""
    kind: Any = deployment.redis.type(key)
    deployment.redis.delete(key)
    if kind == b"string":
        deployment.redis.rpush(key, "junk")
    else:
        deployment.redis.set(key, "junk")


SHARED: dict[str, Callable[[Deployment], str]] = {
    "waiting": lambda d: d.keys.waiting(QUEUE),
    "running": lambda d: d.keys.running(QUEUE),
    "ring": lambda d: d.keys.ring(QUEUE),
    "line": lambda d: d.keys.line(QUEUE, "interactive:p"),
    "stats": lambda d: d.keys.stats(QUEUE),
    "lanes": lambda d: d.keys.lanes(QUEUE),
    "ended": lambda d: d.keys.ended(QUEUE),
    "queues": lambda d: d.keys.queues,
    "workers": lambda d: d.keys.workers,
    "gateways": lambda d: d.keys.gateways,
    "retained": lambda d: d.keys.retained,
    "reaper": lambda d: d.keys.reaper,
    "RQ's list": lambda d: d.carrier.list_key,
}


@pytest.mark.parametrize("name", SHARED)
async def test_a_key_that_somebody_overwrote_is_mended(deployment: Deployment, name: str) -> None:
    """Whatever all jobs share may turn into junk: what it held is put together again from the rest,
    the books balance, and those who wait and run are served to their end."""
    work = deployment.worker()
    running = await deployment.admit("r1")
    claim = deployment.claim(work)
    waiting = await deployment.admit("r2")
    deployment.carrier.push(waiting.job_id)
    put_junk(deployment, SHARED[name](deployment))

    work.heartbeat({}, lanes=2)
    assert work.renew([(claim.job_id, claim.execution)]) == ["ok"]
    deployment.reaper.reap()
    work.heartbeat({}, lanes=2)
    deployment.reap()

    assert Books.read(deployment.redis, "t").faults() == []
    assert deployment.post(work, claim, 0) == ["ok"]
    assert work.end(running.job_id, claim.execution, terminal()).verdict == "ended"
    assert deployment.claim(work).job_id == waiting.job_id
    assert (await deployment.admit("r3")).kind == "admitted"
    assert Books.read(deployment.redis, "t").faults() == []


async def test_who_runs_alone_is_noted_for_as_long_as_it_runs(deployment: Deployment) -> None:
    """The note is told anew when whoever needs it meets junk, and goes with a damaged job."""
    noted = f"t:alone:{QUEUE}"
    work = deployment.worker()
    suspect = await deployment.admit("r1")
    claim = deployment.claim(work)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    assert deployment.claim(work).solo
    put_junk(deployment, noted)

    work.heartbeat({}, lanes=2)
    await deployment.admit("r2")  # the first who asks how long it will wait

    assert deployment.redis.zrange(noted, 0, -1) == [suspect.job_id.encode()]
    assert Books.read(deployment.redis, "t").faults() == []
    deployment.redis.hdel(deployment.keys.job(suspect.job_id), "principal")
    deployment.reap()
    assert not deployment.redis.exists(noted)
    assert Books.read(deployment.redis, "t").faults() == []


NO_TEXT = b"\xff\xfe"


@pytest.mark.parametrize("name", ["waiting", "running", "lanes", "ended", "queues", "gateways"])
async def test_a_name_that_is_no_text_is_nobodys(deployment: Deployment, name: str) -> None:
    """It leaves by itself or at its time, and reaps, the load and a worker's farewell go on."""
    work = deployment.worker()
    waiting = await deployment.admit("r1")
    await deployment.listeners._renew_all()
    key = SHARED[name](deployment)
    if name == "queues":
        deployment.redis.sadd(key, NO_TEXT)
    else:
        deployment.redis.zadd(key, {NO_TEXT + b"|2" * (name == "lanes"): 1})
    if name == "gateways":
        deployment.redis.zadd(key, {NO_TEXT: 9e14})
        deployment.redis.set(b"t:gateway:" + NO_TEXT, "123|5")

    load = await deployment.load.snapshot()
    for _ in range(2):
        deployment.reaper.reap()
        deployment.redis.zadd(deployment.keys.ended(QUEUE), {NO_TEXT: 1})
        deployment.advance_ms(2100)
        work.heartbeat({}, lanes=2)

    assert [*load.queues] == [QUEUE]
    assert [each.gateway_id for each in load.gateways] == ["g1"]
    assert deployment.claim(work).job_id == waiting.job_id
    work.farewell()
    assert deployment.redis.smembers(deployment.keys.queues) == {QUEUE.encode()}
    deployment.reaper.reap()
    assert not deployment.redis.exists(deployment.keys.ended(QUEUE))
    deployment.redis.zrem(deployment.keys.gateways, NO_TEXT)
    deployment.redis.delete(b"t:gateway:" + NO_TEXT)
    assert Books.read(deployment.redis, "t").faults() == []


Call = Callable[[Deployment, WorkQueue, Claim], object]
CALLS: dict[str, Call] = {
    "claim": lambda d, work, claim: work.claim("next"),
    "end": lambda d, work, claim: work.end(claim.job_id, claim.execution, terminal()),
    "hand back": lambda d, work, claim: work.hand_back(claim.job_id, claim.execution),
    "renew": lambda d, work, claim: work.renew([(claim.job_id, claim.execution)]),
    "heartbeat": lambda d, work, claim: work.heartbeat({}, lanes=2),
    "reap": lambda d, work, claim: d.reaper.reap(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", SHARED)
async def test_a_call_that_meets_junk_does_its_work_all_the_same(
    fake: Deployment, name: str, call: str
) -> None:
    """Wherever the script broke off, the books are put right and the call is carried out."""
    work = fake.worker()
    await fake.admit("r0")
    ended = fake.claim(work)
    fake.post(work, ended, 0)
    work.end(ended.job_id, ended.execution, terminal())
    await fake.admit("r1")
    claim = fake.claim(work)
    for number in range(2, 5):
        fake.carrier.push((await fake.admit(f"r{number}")).job_id)
    put_junk(fake, SHARED[name](fake))

    CALLS[call](fake, work, claim)
    if call == "end":
        assert fake.state(claim.job_id) == "ended"
    fake.reaper.reap()
    work.heartbeat({}, lanes=2)
    fake.reap()

    books = Books.read(fake.redis, "t")
    assert books.faults() == []
    assert len(books.live) == (3 if call == "end" else 4)


@pytest.mark.parametrize("name", SHARED)
async def test_the_door_opens_and_a_cancel_works_over_junk(fake: Deployment, name: str) -> None:
    """Who comes in or gives up while a shared key is junk is let in, and gives up, at once."""
    work = fake.worker()
    await fake.admit("r1")
    put_junk(fake, SHARED[name](fake))
    work.heartbeat({}, lanes=2)

    late = await fake.admit("r2")
    assert late.kind == "admitted"
    assert fake.redis.zrange(fake.keys.listeners(late.job_id), 0, -1) == [b"g1|1"]
    assert fake.redis.get(fake.keys.request("p", "r2")) == late.job_id.encode()
    put_junk(fake, SHARED[name](fake))
    hits = (await fake.cancellation.cancel("p", "request", "r1")).hits
    assert [hit.was for hit in hits] in (["queued"], ["already_finished"])  # by its own first try

    fake.reaper.reap()
    work.heartbeat({}, lanes=2)
    fake.reap()
    assert Books.read(fake.redis, "t").faults() == []


FIELDS = [
    *((lambda d: d.keys.reaper, name) for name in ("last_ms", "hold_until_ms", "retained_bytes")),
    (lambda d: d.keys.reaper, f"last_ms:{QUEUE}"),
    *((lambda d: d.keys.stats(QUEUE), name) for name in ("admitted", "ended", "turn", "retried")),
    *((lambda d: d.keys.stats(QUEUE), name) for name in ("running_frames", "running_since_ms")),
    (lambda d: d.keys.stats(QUEUE), "waiting_frames:interactive"),
    *((lambda d: d.keys.stats(QUEUE), name) for name in ("service_ms", "wait_over_ms")),
    *((lambda d: d.keys.stats(QUEUE), name) for name in ("wait_over_weight", "spare_at_ms")),
]


@pytest.mark.parametrize("value", ["soon", "1.5e", "9" * 40, ""])
@pytest.mark.parametrize(("key", "field"), FIELDS, ids=[name for _, name in FIELDS])
async def test_a_count_that_is_no_number_is_mended(
    deployment: Deployment, key: Callable[[Deployment], str], field: str, value: str
) -> None:
    """Whoever meets it puts it right: the reap goes on, jobs are let in, claimed and ended."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    deployment.redis.hset(key(deployment), field, value)

    deployment.reap()
    assert (await deployment.admit("r2")).kind == "admitted"
    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"
    deployment.claim(work)
    deployment.reap()

    assert Books.read(deployment.redis, "t").faults() == []
    if field == "retained_bytes":
        assert deployment.redis.hget(deployment.keys.reaper, field) == b"3904"


@pytest.mark.redis
@pytest.mark.parametrize("value", ["nan", "-inf"])
@pytest.mark.parametrize("field", ["service_ms", "service_budget", "wait_error_ms"])
async def test_a_mean_that_is_not_finite_is_mended(
    real: Deployment, field: str, value: str
) -> None:
    """Lua takes it for a number, and no document can say it: the load is told all the same."""
    work = real.worker()
    await real.admit("r1")
    claim = real.claim(work)
    real.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())
    real.redis.hset(real.keys.stats(QUEUE), field, value)

    assert (await real.load.snapshot()).queue(QUEUE).ended == 1
    assert not real.redis.hexists(real.keys.stats(QUEUE), field)
    assert Books.read(real.redis, "t").faults() == []


MEMBERS: dict[str, str] = {"no bytes": "junk", "too many": "junk|" + "9" * 40, "none": "junk|0"}


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
async def test_kept_audio_that_is_junk_goes(deployment: Deployment, member: str) -> None:
    """A member of the kept audio that says no number is dropped when its time comes, and when the
    cap is reached; nothing is counted for it."""
    work = deployment.worker()
    deployment.redis.zadd(deployment.keys.retained, {member: 1})
    deployment.reap()
    assert not deployment.redis.exists(deployment.keys.retained)

    deployment.redis.zadd(deployment.keys.retained, {member: 1})
    work._ending = (*work._ending[:2], 0)
    await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"

    assert deployment.redis.hget(deployment.keys.reaper, "retained_bytes") == b"3904"


async def test_a_job_of_no_budget_enters_and_leaves(deployment: Deployment) -> None:
    """Nothing is taken off the sums for it, and it ends like any other."""
    work = deployment.worker()
    admitted = await deployment.admit("r1", max_frames=0)
    claim = deployment.claim(work)

    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"
    assert deployment.state(admitted.job_id) == "ended"


OWN: dict[str, Callable[[Deployment, str], str]] = {
    "events": lambda d, job: d.keys.events(job),
    "listeners": lambda d, job: d.keys.listeners(job),
}


@pytest.mark.parametrize("state", ["waiting", "running"])
@pytest.mark.parametrize("name", OWN)
async def test_a_job_whose_own_keys_are_junk_is_discarded(
    deployment: Deployment, name: str, state: str
) -> None:
    """It is refused and recorded, its neighbours in the same call go on, and the next is served."""
    work = deployment.worker()
    damaged = await deployment.join("r1")
    claims = [deployment.claim(work)] if state == "running" else []
    neighbour = await deployment.join("r2")
    put_junk(deployment, OWN[name](deployment, damaged.job_id))
    if state == "running":
        claims.append(deployment.claim(work))
        posts = [LanePost(each.job_id, each.execution, frame(0)) for each in claims]
        assert work.post(posts)[1] == "ok"
        assert work.renew([(each.job_id, each.execution) for each in claims])[1] == "ok"
    await deployment.listeners._renew_all()

    deployment.reap()

    assert deployment.redis.hget(deployment.keys.stats(QUEUE), "ended:discarded") == b"1"
    assert not deployment.redis.exists(OWN[name](deployment, damaged.job_id))
    assert Books.read(deployment.redis, "t").faults() == []
    if state == "waiting":
        assert deployment.claim(work).job_id == neighbour.job_id
    else:
        assert deployment.state(neighbour.job_id) == "running"
    await damaged.leave()


async def test_a_turn_of_many_takes_one_more_beside_a_damaged_one(deployment: Deployment) -> None:
    """Which of a turn's jobs have ended is looked up once there are many; junk is none of them."""
    deployment.change(min_queue_depth=100)
    deployment.worker()
    for number in range(64):
        damaged = await deployment.admit(f"r{number}", cancellation_id="t1")
    put_junk(deployment, deployment.keys.job(damaged.job_id))

    admitted = await deployment.admit("r64", cancellation_id="t1")

    listeners = deployment.keys.listeners(admitted.job_id)
    assert deployment.redis.zrange(listeners, 0, -1) == [b"g1|1"]
    assert deployment.redis.scard(deployment.keys.turn("p", "t1")) == 64


async def test_ids_that_are_junk_belong_to_nobody(deployment: Deployment) -> None:
    """A request id or a turn that holds something else is as good as unknown, and usable again."""
    deployment.worker()
    first = await deployment.admit("r1", cancellation_id="t1")
    put_junk(deployment, deployment.keys.request("p", "r1"))
    put_junk(deployment, deployment.keys.turn("p", "t1"))

    assert (await deployment.cancellation.cancel("p", "request", "r1")).hits == ()
    assert (await deployment.cancellation.cancel("p", "turn", "t1")).hits == ()
    deployment.redis.delete(*deployment.redis.keys("t:cancelled:*"))
    again = await deployment.admit("r1", cancellation_id="t1")

    assert again.kind == "admitted"
    assert again.job_id != first.job_id
