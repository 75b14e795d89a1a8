"""Who is let in at the door, who attaches, who replays, and who is refused without a trace."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import SpeechError
from tests.scheduler.conftest import QUEUE, Deployment, terminal


async def refused(deployment: Deployment, *args: str, **options: object) -> SpeechError:
    """The refusal of an admission that leaves nothing behind in Redis."""
    before = sorted(deployment.redis.keys())
    with pytest.raises(SpeechError) as caught:
        await deployment.admit(*args, **options)  # type: ignore[arg-type]
    assert sorted(deployment.redis.keys()) == before
    return caught.value


async def test_admits_into_waiting(deployment: Deployment) -> None:
    """An admitted job is waiting, bound to its request id, and its caller listens."""
    deployment.worker()

    admitted = await deployment.admit("r1")

    assert admitted.kind == "admitted"
    assert deployment.state(admitted.job_id) == "waiting"
    snapshot = (await deployment.load.snapshot()).queue(QUEUE)
    assert (snapshot.depth, snapshot.in_flight, snapshot.admitted) == (1, 0, 1)
    assert deployment.redis.exists(deployment.keys.listeners(admitted.job_id))


async def test_refuses_without_a_ready_worker(deployment: Deployment) -> None:
    """With no ready worker the answer is at once no_ready_worker, with a retry hint."""
    error = await refused(deployment, "r1")

    assert (error.code, error.status) == ("no_ready_worker", 503)
    assert error.retry_after_s is not None


async def test_a_worker_without_lanes_is_not_ready(deployment: Deployment) -> None:
    """A worker that loads or drains offers no lanes, so nobody is admitted for it."""
    deployment.worker("w1", lanes=2)
    deployment.worker("w1", lanes=0)

    assert (await refused(deployment, "r1")).code == "no_ready_worker"


async def test_a_worker_whose_heartbeat_lapsed_is_not_ready(deployment: Deployment) -> None:
    """Lanes count only as long as their worker is heard."""
    deployment.worker(lapses=True)
    deployment.advance_ms(deployment.settings.lease_ms + 50)

    with pytest.raises(SpeechError, match="no_ready_worker"):
        await deployment.admit("r1")


async def test_the_queue_is_bounded(fake: Deployment) -> None:
    """The depth never passes four per ready lane, at least 16; the next is 429 queue_full."""
    fake.worker(lanes=2)
    for number in range(16):
        await fake.admit(f"r{number}")

    error = await refused(fake, "one-too-many")

    assert (error.code, error.status) == ("queue_full", 429)
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1


async def test_two_gateways_race_for_the_last_place(deployment: Deployment) -> None:
    """Of many racing for one last place exactly one gets it."""
    deployment.worker(lanes=2)
    for number in range(15):
        await deployment.admit(f"r{number}")

    outcomes = await asyncio.gather(
        *(deployment.admit(f"racer-{number}") for number in range(8)), return_exceptions=True
    )

    assert sum(not isinstance(outcome, SpeechError) for outcome in outcomes) == 1
    assert (await deployment.load.snapshot()).queue(QUEUE).depth == 16


async def test_waiting_per_principal_is_bounded(fake: Deployment) -> None:
    """One principal can't fill the queue for all others."""
    fake.change(max_waiting_per_principal=2)
    fake.worker(lanes=4)
    await fake.admit("r1", principal="greedy")
    await fake.admit("r2", principal="greedy")

    error = await refused(fake, "r3", principal="greedy")

    assert error.code == "too_many_waiting"
    assert (await fake.admit("r3", principal="modest")).kind == "admitted"


async def test_a_claim_frees_the_principals_place(fake: Deployment) -> None:
    """Only waiting jobs count against a principal."""
    fake.change(max_waiting_per_principal=1)
    work = fake.worker(lanes=4)
    await fake.admit("r1")
    fake.claim(work)

    assert (await fake.admit("r2")).kind == "admitted"


async def test_refuses_what_cannot_be_met(fake: Deployment) -> None:
    """With all lanes busy and the mean service known, a hopeless deadline is refused at once."""
    work = fake.worker(lanes=1)
    await fake.admit("warm")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    fake.advance_ms(2000)
    work.end(claim.job_id, claim.execution, terminal())
    work.heartbeat({}, lanes=1)
    await fake.admit("running")
    fake.claim(work)
    await fake.admit("ahead")

    error = await refused(fake, "late", timeout_ms=4000)

    assert (error.code, error.status) == ("deadline_unmeetable", 429)
    assert error.retry_after_s == pytest.approx(6, abs=0.5)
    assert (await fake.admit("patient", timeout_ms=20_000)).kind == "admitted"


async def test_an_idle_lane_admits_whatever_the_mean_says(fake: Deployment) -> None:
    """A free lane is never refused on an estimate."""
    work = fake.worker(lanes=1)
    await fake.admit("warm")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    fake.advance_ms(9000)
    work.end(claim.job_id, claim.execution, terminal())
    work.heartbeat({}, lanes=1)

    assert (await fake.admit("short", timeout_ms=500)).kind == "admitted"


async def test_the_same_id_attaches_to_a_live_job(deployment: Deployment) -> None:
    """The same request again while it waits or runs is the same job, never a second one."""
    work = deployment.worker()
    first = await deployment.admit("r1", listener="g1|1")

    waiting = await deployment.admit("r1", listener="g2|1")
    deployment.claim(work)
    running = await deployment.admit("r1", listener="g2|2")

    assert (waiting.kind, waiting.job_id) == ("attached", first.job_id)
    assert (running.kind, running.job_id) == ("attached", first.job_id)
    assert (await deployment.load.snapshot()).queue(QUEUE).admitted == 1


async def test_attaching_extends_the_jobs_deadline(deployment: Deployment) -> None:
    """A later caller with more time moves the job's deadline, never shortens it."""
    deployment.worker()
    first = await deployment.admit("r1", timeout_ms=5000)
    before = int(deployment.field(first.job_id, "deadline_ms") or 0)

    await deployment.admit("r1", timeout_ms=20_000, listener="g1|2")
    extended = int(deployment.field(first.job_id, "deadline_ms") or 0)
    await deployment.admit("r1", timeout_ms=1000, listener="g1|3")

    assert extended >= before + 14_000
    assert int(deployment.field(first.job_id, "deadline_ms") or 0) == extended


@pytest.mark.parametrize("state", ["waiting", "running", "ended"])
async def test_another_request_under_the_same_id_conflicts(
    deployment: Deployment, state: str
) -> None:
    """A request id that means something else is 409, whatever state its job is in."""
    work = deployment.worker()
    await deployment.admit("r1", fingerprint="f1")
    if state != "waiting":
        claim = deployment.claim(work)
        if state == "ended":
            work.end(claim.job_id, claim.execution, terminal())

    error = await refused(deployment, "r1", fingerprint="f2")

    assert (error.code, error.status) == ("request_id_conflict", 409)


async def test_ids_are_private_to_their_principal(deployment: Deployment) -> None:
    """Two principals with the same request id have two jobs and no conflict."""
    deployment.worker()

    mine = await deployment.admit("r1", principal="a", fingerprint="f1")
    theirs = await deployment.admit("r1", principal="b", fingerprint="f2")

    assert mine.job_id != theirs.job_id


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_a_finished_request_is_replayed(deployment: Deployment, reason: str) -> None:
    """A retry of what was spoken points at the record, not at a second generation."""
    work = deployment.worker()
    first = await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal(reason))

    again = await deployment.admit("r1")

    assert (again.kind, again.job_id) == ("replay", first.job_id)


async def test_a_failed_request_is_generated_anew(deployment: Deployment) -> None:
    """A retry of what failed is a new generation."""
    work = deployment.worker()
    first = await deployment.admit("r1")
    claim = deployment.claim(work)
    work.end(claim.job_id, claim.execution, terminal("error", failure_code="csm_synthesis_failed"))

    again = await deployment.admit("r1")

    assert again.kind == "admitted"
    assert again.job_id != first.job_id


async def test_audio_that_is_no_longer_kept_is_generated_anew(fake: Deployment) -> None:
    """Once the audio's time is over, the same id speaks again instead of replaying nothing."""
    work = fake.worker()
    await fake.admit("r1")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())
    fake.advance_ms(fake.settings.result_ttl_ms + 1000)
    work.heartbeat({}, lanes=2)

    assert (await fake.admit("r1")).kind == "admitted"


async def test_a_lost_reply_admits_once(deployment: Deployment) -> None:
    """The same admission sent twice, as after a lost reply, is one job."""
    from scheduler.admission import AdmitRequest
    from tests.scheduler.conftest import speech_job

    deployment.worker()
    request = AdmitRequest("p", QUEUE, "f", 1000, speech_job("r1"))

    first = await deployment.admission.admit(request, "t-same", "g1|1")
    second = await deployment.admission.admit(request, "t-same", "g1|1")

    assert first == second
    assert (await deployment.load.snapshot()).queue(QUEUE).depth == 1
