"""What dead processes leave behind, and who puts it right."""

from __future__ import annotations

from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from scheduler.queue import Claim
from scheduler.reaper import Reaper, ReapReport
from tests.scheduler.conftest import QUEUE, Deployment, terminal


async def test_a_lost_hint_is_pushed_again(deployment: Deployment) -> None:
    """A gateway that died between admission and RQ's enqueue loses nothing."""
    deployment.worker()
    admitted = await deployment.admit("r1")
    assert deployment.listed() == []

    assert deployment.reap().pushed == 1

    assert deployment.listed() == [admitted.job_id]
    assert deployment.reap().pushed == 0


async def test_an_id_stranded_in_rqs_intermediate_list_is_pushed_again(
    deployment: Deployment,
) -> None:
    """A worker killed between RQ's dequeue and our claim loses nothing."""
    deployment.worker()
    admitted = await deployment.admit("r1")
    deployment.carrier.push(admitted.job_id)
    assert deployment.carrier.pull(None) == admitted.job_id  # and dies here

    deployment.reap()

    assert deployment.carrier.pull(None) == admitted.job_id


async def test_many_reapers_do_the_work_of_one(fake: Deployment) -> None:
    """Whoever leaves a gap finds nothing to do right after another, and all of it after the gap."""
    polite = Reaper(fake.redis, fake.settings, gap_ms=500)
    fake.worker()
    fake.reap()
    await fake.admit("r1")

    assert [report.pushed for report in polite.reap()] == [0]
    fake.advance_ms(500)
    assert [report.pushed for report in polite.reap()] == [1]
    await fake.admit("r2")
    assert fake.reap().pushed == 1


async def test_waiting_past_the_deadline_expires(fake: Deployment) -> None:
    """A job that no worker claimed in time ends as queue_timeout."""
    fake.worker()
    admitted = await fake.admit("r1", timeout_ms=1000)
    fake.reap()
    fake.advance_ms(1100)

    assert fake.reap().expired == 1

    record = await fake.results.read(admitted.job_id)
    assert record is not None
    assert record.end is not None
    assert record.end.failure_code == "queue_timeout"


async def test_running_past_the_deadline_expires_after_a_moment(fake: Deployment) -> None:
    """A worker gets a moment to end its overdue job itself, then the reaper does."""
    work = fake.worker()
    admitted = await fake.admit("r1", timeout_ms=1000)
    claim = fake.claim(work)
    fake.reap()
    fake.advance_ms(1200)
    work.renew([(claim.job_id, claim.execution)])
    assert fake.reap().expired == 0
    fake.advance_ms(400)
    work.renew([(claim.job_id, claim.execution)])

    assert fake.reap().expired == 1

    record = await fake.results.read(admitted.job_id)
    assert record is not None
    assert record.end is not None
    assert record.end.failure_code == "generation_timeout"


async def test_listeners_that_lapse_abandon_their_job(fake: Deployment) -> None:
    """When a gateway dies, its waiting jobs end and its running ones are told to stop."""
    work = fake.worker()
    running = await fake.admit("r1", timeout_ms=30_000)
    claim = fake.claim(work)
    waiting = await fake.admit("r2", timeout_ms=30_000)
    for _ in range(8):
        fake.reap()
        fake.advance_ms(900)
        work.renew([(claim.job_id, claim.execution)])

    assert fake.state(waiting.job_id) == "ended"
    assert fake.post(work, claim, 0) == ["cancelled"]
    work.heartbeat({}, lanes=2)
    assert (await fake.admit("r2")).kind == "admitted"
    assert (await fake.admit("r1")).job_id != running.job_id


async def test_one_listener_that_stays_keeps_the_job(fake: Deployment) -> None:
    """A job that another gateway also listens to goes on."""
    work = fake.worker()
    admitted = await fake.admit("r1", timeout_ms=30_000, listener="dead|1")
    claim = fake.claim(work)
    await fake.admit("r1", timeout_ms=30_000, listener="alive|1")
    for _ in range(8):
        fake.redis.zadd(fake.keys.listeners(admitted.job_id), {"alive|1": 9e15})
        fake.reap()
        fake.advance_ms(900)
        work.renew([(claim.job_id, claim.execution)])

    assert fake.post(work, claim, 0) == ["ok"]


async def claimed_and_silent(fake: Deployment, worker_id: str) -> str:
    """The request of a job whose worker took it and will not renew."""
    work, request_id = fake.worker(worker_id), uuid4().hex
    admitted = await fake.admit(request_id, timeout_ms=30_000)
    claim = work.claim(uuid4().hex)
    assert isinstance(claim, Claim)
    fake.redis.zadd(fake.keys.listeners(admitted.job_id), {"g1|1": 9e15})
    fake.redis.zadd(fake.keys.running(QUEUE), {admitted.job_id: 1})  # lapsed, as soon as it may be
    return request_id


def reap_until_somebody_is_silent(fake: Deployment) -> ReapReport:
    for _ in range(100):
        report = fake.reap()
        if report.silent:
            return report
        fake.advance_ms(fake.settings.lease_ms // 4)
    pytest.fail("nobody fell silent")


async def test_who_fell_silent_is_named(fake: Deployment) -> None:
    """Whoever looks for a lost worker finds its id in the report and in the log, once."""
    for name in ("w1", "w1", "w2"):
        await claimed_and_silent(fake, name)

    with capture_logs() as logged:
        report = reap_until_somebody_is_silent(fake)
        assert fake.reap().silent == ()

    assert report.returned == 3
    assert sorted(report.silent) == ["w1", "w2"]
    assert [sorted(entry["silent_workers"]) for entry in logged if entry["returned"]] == [
        ["w1", "w2"]
    ]


async def test_who_fell_silent_is_named_though_nothing_goes_back(fake: Deployment) -> None:
    """The job was cancelled and ends with its lease: its worker is lost all the same."""
    request_id = await claimed_and_silent(fake, "w1")
    await fake.cancellation.cancel("p", "request", request_id)

    with capture_logs() as logged:
        report = reap_until_somebody_is_silent(fake)

    assert (report.returned, report.lost) == (0, 0)
    assert [entry["silent_workers"] for entry in logged if entry["event"] == "reaped"] == [("w1",)]


async def test_nothing_lapses_right_after_a_silence(fake: Deployment) -> None:
    """When nobody reaped for a while, leases and listeners get one lease time to be renewed."""
    work = fake.worker()
    await fake.admit("r1", timeout_ms=60_000)
    claim = fake.claim(work)
    fake.reap()
    fake.advance_ms(20_000)

    first = fake.reap()
    assert first.held
    assert (first.returned, first.abandoned) == (0, 0)
    fake.advance_ms(500)
    assert work.renew([(claim.job_id, claim.execution)]) == ["ok"]
    fake.redis.zadd(fake.keys.listeners(claim.job_id), {"g1|1": 9e15})
    for _ in range(3):
        fake.advance_ms(900)
        work.renew([(claim.job_id, claim.execution)])
        fake.reap()

    assert fake.state(claim.job_id) == "running"


async def test_rq_forgets_ended_jobs(deployment: Deployment) -> None:
    """RQ's records, registry rows and lists of an ended job go, also when its worker died first."""
    work = deployment.worker()
    deployment.carrier.birth("w1")
    await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.carrier.push(claim.job_id)
    hint = deployment.carrier.pull(None)
    deployment.carrier.started(claim.job_id, hint)
    assert deployment.redis.exists(f"rq:job:{claim.job_id}")
    work.end(claim.job_id, claim.execution, terminal())
    deployment.advance_ms(2100)

    deployment.reap()

    deployment.carrier.death()
    left = {str(key, "utf-8") for key in deployment.redis.scan_iter("rq:*")}
    assert left <= {"rq:queues", "rq:workers", f"rq:workers:{QUEUE}"}


async def test_kept_audio_is_bounded_in_bytes(fake: Deployment) -> None:
    """Over the cap the oldest audio goes first; its outcome stays."""
    fake.change(retained_bytes=3 * 3904)
    work = fake.worker()
    jobs = []
    for number in range(3):
        await fake.admit(f"r{number}")
        claim = fake.claim(work)
        fake.post(work, claim, 0, 1)
        fake.redis.delete(fake.keys.listeners(claim.job_id))
        work._ending = (*work._ending[:2], 3 * 3904)
        work.end(claim.job_id, claim.execution, terminal())
        jobs.append(claim.job_id)
        fake.advance_ms(10)

    kept = [bool(await fake.frames(job_id)) for job_id in jobs]

    assert kept == [False, False, True]
    assert (await fake.results.find("p", "r0")) is not None


async def test_everything_expires(fake: Deployment) -> None:
    """A while after the last end, only counters and registrations of ours are left."""
    work = fake.worker()
    for number in range(4):
        await fake.admit(f"r{number}", cancellation_id="turn")
    for _ in range(2):
        claim = fake.claim(work)
        fake.post(work, claim, 0)
        work.end(claim.job_id, claim.execution, terminal())
    await fake.cancellation.cancel("p", "turn", "turn")
    await fake.cancellation.cancel("p", "request", "unknown")
    fake.advance_ms(fake.settings.metadata_ttl_ms + 1000)
    fake.reap()
    fake.reap()

    left = {str(key, "utf-8") for key in fake.redis.scan_iter("t:*")}

    assert left == {f"t:stats:{QUEUE}", "t:queues", "t:reaper"}
    assert fake.redis.hget("t:reaper", "retained_bytes") == b"0"


@pytest.mark.redis
async def test_a_full_redis_is_freed_first_and_given_hints_later(real: Deployment) -> None:
    """RQ's records of ended jobs go though no hint can be pushed, and then the hints come."""
    work = real.worker()
    ended = await real.admit("ended")
    real.carrier.push(ended.job_id)
    claim = real.claim(work, hint=ended.job_id)
    work.end(claim.job_id, claim.execution, terminal())
    waiting = await real.admit("waiting", timeout_ms=60_000)
    real.redis.zadd(real.keys.ended(QUEUE), {ended.job_id: 1})
    real.redis.zadd(real.keys.listeners(waiting.job_id), {"g1|1": 9e15})
    used = int(real.redis.info("memory")["used_memory"])
    real.redis.config_set("maxmemory", used // 2)

    full = real.reap()
    real.redis.config_set("maxmemory", 0)
    after = real.reap()

    assert (full.swept, full.pushed, after.pushed) == (1, 0, 1)
    assert real.listed() == [waiting.job_id]


async def test_a_clock_that_jumps_ahead_and_back_holds_nothing(fake: Deployment) -> None:
    """Leases lapse as ever after Redis's clock was an hour ahead for one reap."""
    work = fake.worker()
    fake.reap()
    fake.advance_ms(3_600_000)
    fake.reap()
    fake.advance_ms(-3_600_000)
    work = fake.worker()
    admitted = await fake.admit("r1", timeout_ms=60_000)
    fake.claim(work)
    fake.reap()

    fake.lapse(admitted.job_id)

    assert fake.state(admitted.job_id) == "waiting"


async def test_audio_that_is_heard_outlasts_the_cap(deployment: Deployment) -> None:
    """Over the cap, what nobody listens to any more goes first; the rest goes once it is heard."""
    work = deployment.worker()
    work._ending = (*work._ending[:2], 2 * 3904)
    jobs = []
    for number in range(3):
        await deployment.admit(f"r{number}")
        claim = deployment.claim(work)
        deployment.post(work, claim, 0)
        jobs.append(claim.job_id)
        if number == 1:
            deployment.redis.delete(deployment.keys.listeners(claim.job_id))
        work.end(claim.job_id, claim.execution, terminal())

    kept = [bool(deployment.redis.exists(deployment.keys.events(job))) for job in jobs]
    assert kept == [True, False, True]
    assert deployment.redis.hget(deployment.keys.reaper, "retained_bytes") == b"7808"

    await deployment.listeners.departures.say(jobs[0], "g1|1")
    await deployment.admit("r3")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())
    assert not deployment.redis.exists(deployment.keys.events(jobs[0]))
