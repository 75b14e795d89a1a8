"""A worker's side: claim, post, renew, end, hand back, and what a lost lease may not do."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.queue import Claim, LanePost
from tests.scheduler.conftest import QUEUE, Deployment, frame, speech_job, terminal


async def test_a_claim_carries_the_whole_job(deployment: Deployment) -> None:
    """A claim hands over exactly what was admitted, with its remaining time."""
    work = deployment.worker()
    await deployment.admit("r1", timeout_ms=5000, input="Say this.")

    claim = deployment.claim(work)

    assert claim.job == speech_job("r1", input="Say this.")
    assert (claim.attempt, claim.delivered, claim.solo) == (1, (), False)
    assert 4000 < claim.remaining_ms <= 5000
    assert deployment.state(claim.job_id) == "running"


async def test_claims_are_first_in_first_out(deployment: Deployment) -> None:
    """Jobs are claimed in the order of their admission, whatever hint RQ handed over."""
    work = deployment.worker()
    ids = [(await deployment.admit(f"r{number}")).job_id for number in range(3)]

    claimed = [deployment.claim(work, hint=ids[2]).job_id for _ in range(3)]

    assert claimed == ids
    assert work.claim("e") is None


async def test_another_jobs_hint_is_put_back(deployment: Deployment) -> None:
    """When a claim takes another job than the hint names, RQ's list holds each waiting one."""
    work = deployment.worker()
    first = (await deployment.admit("r1")).job_id
    second = (await deployment.admit("r2")).job_id
    deployment.carrier.push(first)
    deployment.carrier.push(second)
    deployment.redis.lrem(deployment.carrier.list_key, 1, second)

    claim = deployment.claim(work, hint=second)

    assert claim.job_id == first
    assert deployment.listed() == [second]


async def test_a_lost_reply_claims_once(deployment: Deployment) -> None:
    """A claim sent again under the same execution returns the same job."""
    work = deployment.worker()
    await deployment.admit("r1")
    await deployment.admit("r2")

    first = work.claim("same")
    second = work.claim("same")

    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert (first.job_id, first.attempt) == (second.job_id, second.attempt)


async def test_an_overdue_job_is_not_claimed(fake: Deployment) -> None:
    """A job whose deadline passed in the queue ends as queue_timeout and is never started."""
    work = fake.worker()
    admitted = await fake.admit("r1", timeout_ms=1000)
    fake.advance_ms(1001)

    assert work.claim("e") is None
    record = await fake.results.read(admitted.job_id)
    assert record is not None
    assert record.end is not None
    assert (record.end.finish_reason, record.end.failure_code) == ("timeout", "queue_timeout")


async def test_frames_are_posted_in_order_and_once(deployment: Deployment) -> None:
    """Frames come out as posted; a repeated one is not written twice, a gap is refused."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)

    assert deployment.post(work, claim, 0, 1, 1, 0) == ["ok"] * 4
    assert deployment.post(work, claim, 3) == ["lost"]

    frames = await deployment.frames(claim.job_id)
    assert [(item.index, item.codes, item.pcm) for item in frames] == [
        (index, frame(index).codes, frame(index).pcm) for index in (0, 1)
    ]


async def test_all_lanes_go_in_one_call(deployment: Deployment) -> None:
    """One call posts every lane's frame and answers for each, also those without a frame yet."""
    work = deployment.worker()
    claims = []
    for number in range(3):
        await deployment.admit(f"r{number}")
        claims.append(deployment.claim(work))
    await deployment.cancellation.cancel("p", "request", "r1")

    verdicts = work.post(
        [
            LanePost(claims[0].job_id, claims[0].execution, frame(0)),
            LanePost(claims[1].job_id, claims[1].execution, frame(0)),
            LanePost(claims[2].job_id, claims[2].execution, None),
        ]
    )

    assert verdicts == ["ok", "cancelled", "ok"]
    assert deployment.kinds(claims[1].job_id) == ["claimed"]


async def test_end_keeps_the_outcome_and_deletes_the_text(deployment: Deployment) -> None:
    """After the end there is one terminal, its evidence is kept and the text is gone."""
    work = deployment.worker()
    await deployment.admit("r1", input="secret words")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)

    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"

    assert deployment.kinds(claim.job_id) == ["claimed", "frame", "end"]
    record = await deployment.results.find("p", "r1")
    assert record is not None
    assert record.end is not None
    assert record.end.terminal == terminal()
    assert record.end.first_audio_latency_ms is not None
    assert b"secret words" not in stored_bytes(deployment, claim.job_id)
    snapshot = (await deployment.load.snapshot()).queue(QUEUE)
    assert (snapshot.depth, snapshot.in_flight, snapshot.ended) == (0, 0, 1)


def stored_bytes(deployment: Deployment, job_id: str) -> bytes:
    """All that Redis holds of a job, its RQ record included."""
    hashes: Any = [
        deployment.redis.hgetall(key) for key in (deployment.keys.job(job_id), f"rq:job:{job_id}")
    ]
    return repr((hashes, deployment.redis.xrange(deployment.keys.events(job_id)))).encode()


async def test_the_text_is_in_redis_only_while_it_is_needed(deployment: Deployment) -> None:
    """The check of the test above can fail: a waiting job does hold its text."""
    deployment.worker()
    admitted = await deployment.admit("r1", input="secret words")

    assert b"secret words" in stored_bytes(deployment, admitted.job_id)


async def test_ending_twice_is_one_end(deployment: Deployment) -> None:
    """An end sent again after a lost reply is acknowledged and not repeated."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)

    work.end(claim.job_id, claim.execution, terminal())

    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"
    assert deployment.kinds(claim.job_id).count("end") == 1


async def test_a_lost_lease_writes_nothing(deployment: Deployment) -> None:
    """After its lease lapsed and the job went on elsewhere, a stalled worker can change nothing."""
    stalled, other = deployment.worker("w1"), deployment.worker("w2")
    await deployment.admit("r1")
    claim = deployment.claim(stalled)
    deployment.post(stalled, claim, 0)
    deployment.lapse(claim.job_id)
    again = deployment.claim(other)
    before = deployment.kinds(claim.job_id)

    assert deployment.post(stalled, claim, 1) == ["lost"]
    assert stalled.renew([(claim.job_id, claim.execution)]) == ["lost"]
    assert stalled.end(claim.job_id, claim.execution, terminal()).verdict == "lost"
    assert stalled.hand_back(claim.job_id, claim.execution) == "lost"

    assert deployment.kinds(claim.job_id) == before
    assert (again.job_id, again.attempt) == (claim.job_id, 2)
    assert [item.index for item in again.delivered] == [0]
    assert again.delivered[0].codes == frame(0).codes


async def test_renewed_leases_do_not_lapse(deployment: Deployment) -> None:
    """A job whose lease is renewed stays with its worker through any number of reaps."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)
    for _ in range(6):
        deployment.advance_ms(deployment.settings.lease_ms // 3)
        assert work.renew([(claim.job_id, claim.execution)]) == ["ok"]
        deployment.reap()

    assert deployment.state(claim.job_id) == "running"


async def test_both_attempts_lost_is_worker_lost(fake: Deployment) -> None:
    """A job whose every attempt was lost ends once, as worker_lost."""
    work = fake.worker()
    admitted = await fake.admit("r1", timeout_ms=30_000)
    fake.claim(work)
    fake.lapse(admitted.job_id)
    fake.claim(work)
    for _ in range(5):
        fake.advance_ms(900)
        fake.redis.zadd(fake.keys.listeners(admitted.job_id), {"g1|1": 9e15})
        fake.reap()

    record = await fake.results.read(admitted.job_id)

    assert record is not None
    assert record.end is not None
    assert record.end.failure_code == "worker_lost"
    assert fake.kinds(admitted.job_id) == ["claimed", "claimed", "end"]


async def test_who_loses_both_attempts_in_company_gets_one_more_alone(
    deployment: Deployment,
) -> None:
    """Of jobs lost together twice nobody knows which it was: each then runs alone, once."""
    deployment.worker()
    ids = [(await deployment.admit(f"r{n}", timeout_ms=60_000)).job_id for n in range(2)]
    for worker in ("w1", "w2"):
        work = deployment.worker(worker)
        for _ in ids:
            assert not deployment.claim(work).solo
        lose(deployment, ids)
    last = deployment.worker("w3")

    claim = deployment.claim(last)
    assert (claim.attempt, claim.solo) == (3, True)
    assert last.claim("beside", busy_lanes=1) == "solo"
    lose(deployment, [claim.job_id], "ended")
    other = deployment.claim(last)
    assert (other.attempt, other.solo) == (3, True)
    assert last.end(other.job_id, other.execution, terminal()).verdict == "ended"

    assert deployment.field(claim.job_id, "finish_reason") == "worker_lost"
    assert deployment.field(other.job_id, "finish_reason") == "stop"


async def test_company_is_known_though_leases_lapse_one_by_one(fake: Deployment) -> None:
    """A neighbour that was claimed later lapses later: the first of them still was not alone."""
    fake.worker()
    ids = [(await fake.admit(f"r{n}", timeout_ms=60_000)).job_id for n in range(2)]
    for worker in ("w1", "w2"):
        work = fake.worker(worker)
        for job_id in ids:
            fake.claim(work)
            fake.redis.zadd(fake.keys.running(QUEUE), {job_id: 9e15})
        for job_id in ids:
            fake.redis.zadd(fake.keys.running(QUEUE), {job_id: 0})
            lose(fake, [job_id])

    assert [fake.field(job_id, "solo") for job_id in ids] == ["1", "1"]


def lose(deployment: Deployment, job_ids: list[str], state: str = "waiting") -> None:
    """The worker of these jobs is silent until all of their leases have lapsed."""
    for _ in range(100):
        for job_id in job_ids:
            deployment.redis.zadd(deployment.keys.listeners(job_id), {"g1|1": 9e15})
        deployment.reap()
        if {deployment.state(job_id) for job_id in job_ids} == {state}:
            return
        deployment.advance_ms(max(50, deployment.settings.lease_ms // 4))
    pytest.fail("the leases never lapsed")


async def test_handing_back_is_no_attempt(deployment: Deployment) -> None:
    """A draining worker's job goes back to the front, keeps its attempts, and RQ carries its id."""
    work = deployment.worker()
    first = await deployment.admit("r1")
    await deployment.admit("r2")
    claim = deployment.claim(work)

    assert work.hand_back(claim.job_id, claim.execution) == "waiting"

    assert deployment.listed()[0] == first.job_id
    again = deployment.claim(work)
    assert (again.job_id, again.attempt) == (first.job_id, 1)


async def test_a_fault_counts_and_the_job_runs_alone(deployment: Deployment) -> None:
    """What broke its worker comes back as attempt 2, only for a worker with no busy lane."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)

    assert work.hand_back(claim.job_id, claim.execution, fault=True) == "waiting"

    assert work.claim("e2", busy_lanes=1) == "solo"
    again = deployment.claim(work)
    assert (again.attempt, again.solo) == (2, True)
    assert work.hand_back(again.job_id, again.execution, fault=True) == "ended"


async def test_a_timeout_before_an_extended_deadline_is_early(deployment: Deployment) -> None:
    """When another caller moved the deadline, the worker hears how long it may go on."""
    work = deployment.worker()
    await deployment.admit("r1", timeout_ms=200)
    claim = deployment.claim(work)
    await deployment.admit("r1", timeout_ms=20_000, listener="g1|2")

    outcome = work.end(claim.job_id, claim.execution, terminal("timeout"))

    assert outcome.verdict == "early"
    assert outcome.remaining_ms > 10_000


async def test_an_unreadable_payload_ends_and_the_next_is_served(deployment: Deployment) -> None:
    """A payload that is not a job ends as an error, and the worker goes on with the next."""
    work = deployment.worker()
    bad = await deployment.admit("bad")
    good = await deployment.admit("good")
    deployment.redis.hset(deployment.keys.job(bad.job_id), "payload", b"\x80\x04garbage")

    assert deployment.claim(work).job_id == good.job_id

    record = await deployment.results.read(bad.job_id)
    assert record is not None
    assert record.end is not None
    assert record.end.failure_code == "internal_error"


async def test_a_reply_lost_for_longer_than_a_lease_costs_nothing(fake: Deployment) -> None:
    """A claim asked for again late, before anyone reaped, is the same one under a new lease;
    no second job runs under its execution, and no attempt is lost."""
    work = fake.worker()
    fake.reap()
    for principal in ("a", "b"):
        await fake.admit("r1", principal=principal, timeout_ms=30_000)
    first = fake.claim_as(work, "same")
    fake.advance_ms(20_000)

    again = fake.claim_as(work, "same")

    assert (again.job_id, again.attempt) == (first.job_id, 1)
    assert fake.redis.zcard(fake.keys.running(QUEUE)) == 1
    for _ in range(2):
        fake.reap()
        fake.advance_ms(2000)
        assert work.renew([(first.job_id, "same")]) == ["ok"]


async def test_a_claim_whose_job_was_reaped_is_no_claim(fake: Deployment) -> None:
    """Asked for again after the reaper took the job back, it takes what is first in line."""
    work = fake.worker()
    await fake.admit("r1", timeout_ms=30_000)
    first = fake.claim_as(work, "same")
    fake.lapse(first.job_id)

    again = fake.claim_as(work, "same")

    assert (again.job_id, again.attempt) == (first.job_id, 2)


async def test_what_the_reaper_ended_its_worker_has_lost(fake: Deployment) -> None:
    """A worker that states an end after the reaper's hears that it came too late."""
    work = fake.worker()
    await fake.admit("r1", timeout_ms=1000)
    claim = fake.claim(work)
    fake.advance_ms(1600)
    assert fake.reap().expired == 1

    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "lost"
