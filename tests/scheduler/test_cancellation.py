"""Cancels: of what waits, of what runs, of what is still on its way, and of nobody else's."""

from __future__ import annotations

import pytest

from scheduler.cancellation import CancelHit
from shared.errors import SpeechError
from tests.scheduler.conftest import QUEUE, Deployment, terminal


async def test_a_queued_job_leaves_the_queue(deployment: Deployment) -> None:
    """Cancelling what waits ends it at once, and no worker will see it."""
    work = deployment.worker()
    admitted = await deployment.admit("r1")

    report = await deployment.cancellation.cancel("p", "request", "r1")

    assert report.hits == (CancelHit("r1", "queued"),)
    assert not report.remembered
    assert work.claim("e") is None
    assert deployment.kinds(admitted.job_id) == ["end"]
    assert (await deployment.load.snapshot()).queue(QUEUE).depth == 0


async def test_a_running_job_is_told_at_its_next_frame(deployment: Deployment) -> None:
    """A frame after the cancel is refused, so no late audio leaves, and the end says cancelled."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)

    report = await deployment.cancellation.cancel("p", "request", "r1")

    assert report.hits == (CancelHit("r1", "running"),)
    assert deployment.post(work, claim, 1) == ["cancelled"]
    assert work.renew([(claim.job_id, claim.execution)]) == ["cancelled"]
    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "cancelled"
    assert work.end(claim.job_id, claim.execution, terminal("cancelled")).verdict == "ended"
    assert deployment.kinds(claim.job_id) == ["claimed", "frame", "end"]


async def test_a_turn_covers_its_requests(deployment: Deployment) -> None:
    """One cancellation id stops every request of the turn and says what each was."""
    work = deployment.worker()
    for number in range(3):
        await deployment.admit(f"r{number}", cancellation_id="turn")
    await deployment.admit("other", cancellation_id="another")
    ended = deployment.claim(work)
    work.end(ended.job_id, ended.execution, terminal())
    deployment.claim(work)

    report = await deployment.cancellation.cancel("p", "turn", "turn")

    assert {(hit.request_id, hit.was) for hit in report.hits} == {
        ("r0", "already_finished"),
        ("r1", "running"),
        ("r2", "queued"),
    }
    assert (await deployment.load.snapshot()).queue(QUEUE).depth == 1


@pytest.mark.parametrize(("kind", "id_"), [("turn", "turn"), ("request", "r1")])
async def test_a_cancel_that_overtakes_its_request_wins(
    deployment: Deployment, kind: str, id_: str
) -> None:
    """A cancel of something unknown is remembered, and the request that comes later is refused."""
    deployment.worker()

    report = await deployment.cancellation.cancel("p", kind, id_)  # type: ignore[arg-type]

    assert (report.hits, report.remembered) == ((), True)
    with pytest.raises(SpeechError, match="cancelled"):
        await deployment.admit("r1", cancellation_id="turn")


async def test_the_memory_of_a_cancel_fades(fake: Deployment) -> None:
    """After a while the id may be used again."""
    await fake.cancellation.cancel("p", "turn", "turn")
    fake.advance_ms(fake.settings.cancel_memory_ms + 1000)
    fake.worker()

    assert (await fake.admit("r1", cancellation_id="turn")).kind == "admitted"


async def test_cancelling_what_finished_does_not_forbid_its_replay(deployment: Deployment) -> None:
    """A cancel that came too late leaves the finished answer as it is."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())

    report = await deployment.cancellation.cancel("p", "request", "r1")

    assert report.hits == (CancelHit("r1", "already_finished"),)
    assert (await deployment.admit("r1")).kind == "replay"


async def test_a_cancelled_request_replays_as_cancelled(deployment: Deployment) -> None:
    """A retry of what its caller cancelled is the cancelled record, not a new generation."""
    deployment.worker()
    first = await deployment.admit("r1")
    await deployment.cancellation.cancel("p", "request", "r1")

    again = await deployment.admit("r1")

    assert (again.kind, again.job_id) == ("replay", first.job_id)


async def test_who_cancels_and_then_hangs_up_has_cancelled(deployment: Deployment) -> None:
    """A running request that its caller cancels and leaves before the worker's next frame replays
    as cancelled, before that frame and after the end."""
    work = deployment.worker()
    first = await deployment.admit("r1")
    claim = deployment.claim(work)
    deployment.post(work, claim, 0)
    await deployment.cancellation.cancel("p", "request", "r1")

    await deployment.listeners.departures.say(first.job_id, "g1|1")

    assert (await deployment.admit("r1", listener="g1|2")).kind == "attached"
    await deployment.listeners.departures.say(first.job_id, "g1|2")
    assert deployment.post(work, claim, 1) == ["cancelled"]
    work.end(claim.job_id, claim.execution, terminal("cancelled"))
    deployment.worker()
    again = await deployment.admit("r1", listener="g1|3")
    assert (again.kind, again.job_id) == ("replay", first.job_id)
    record = await deployment.results.read(first.job_id)
    assert record is not None
    assert record.end is not None
    assert not record.end.abandoned


async def test_cancelling_is_idempotent(deployment: Deployment) -> None:
    """Cancelling twice ends once."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)

    for _ in range(2):
        report = await deployment.cancellation.cancel("p", "request", "r1")
        assert report.hits == (CancelHit("r1", "running"),)
    work.end(claim.job_id, claim.execution, terminal("cancelled"))

    assert deployment.kinds(claim.job_id) == ["claimed", "end"]


async def test_nobody_cancels_anothers_work(deployment: Deployment) -> None:
    """Ids live under their principal."""
    work = deployment.worker()
    await deployment.admit("r1", principal="a", cancellation_id="turn")

    by_request = await deployment.cancellation.cancel("b", "request", "r1")
    by_turn = await deployment.cancellation.cancel("b", "turn", "turn")

    assert (by_request.hits, by_turn.hits) == ((), ())
    claim = deployment.claim(work)
    assert deployment.post(work, claim, 0) == ["ok"]


async def test_a_cancelled_job_whose_worker_died_ends_cancelled(fake: Deployment) -> None:
    """The reaper ends a cancelled job of a dead worker as cancelled instead of running it again."""
    work = fake.worker()
    admitted = await fake.admit("r1")
    fake.claim(work)
    await fake.cancellation.cancel("p", "request", "r1")
    for _ in range(5):
        fake.reap()
        fake.advance_ms(900)

    record = await fake.results.read(admitted.job_id)

    assert record is not None
    assert record.end is not None
    assert (record.end.finish_reason, record.end.attempt) == ("cancelled", 1)


async def test_what_was_admitted_goes_on_at_the_memory_limit(real: Deployment) -> None:
    """With Redis full, admissions are refused; cancels, leases, frames and ends still work."""
    work = real.worker()
    await real.admit("r1")
    claim = real.claim(work)
    await real.admit("r2")
    used = int(real.redis.info("memory")["used_memory"])
    real.redis.config_set("maxmemory", used // 2)

    with pytest.raises(SpeechError, match="queue_memory_low"):
        await real.admit("r3")
    await real.cancellation.cancel("p", "request", "r2")
    assert work.renew([(claim.job_id, claim.execution)]) == ["ok"]
    assert real.post(work, claim, 0) == ["ok"]
    assert work.end(claim.job_id, claim.execution, terminal()).verdict == "ended"
    assert real.reap().lost == 0


async def test_the_latest_cancels_of_a_caller_are_remembered(deployment: Deployment) -> None:
    """However many ids somebody cancels that nobody knows, what is kept of them is bounded: one key
    and a thousand ids, the latest, for each caller."""
    deployment.worker()
    await deployment.cancellation.cancel("p", "request", "other-callers")
    for number in range(1001):
        await deployment.cancellation.cancel("q", "request", f"r{number}")

    assert len(deployment.redis.keys("t:cancelled:*")) == 2
    assert deployment.redis.zcard(deployment.keys.cancelled("q")) == 1000
    assert 0 < deployment.redis.pttl(deployment.keys.cancelled("q")) <= 60_000
    assert (await deployment.admit("r0", principal="q")).kind == "admitted"
    for principal, request_id in (("q", "r1"), ("q", "r1000"), ("p", "other-callers")):
        with pytest.raises(SpeechError, match="cancelled"):
            await deployment.admit(request_id, principal=principal)


async def test_each_remembered_cancel_fades_by_itself(fake: Deployment) -> None:
    """A later cancel of the same caller keeps no earlier one alive."""
    await fake.cancellation.cancel("p", "request", "r1")
    fake.advance_ms(fake.settings.cancel_memory_ms - 1000)
    await fake.cancellation.cancel("p", "request", "r2")
    fake.advance_ms(2000)
    fake.worker()

    assert (await fake.admit("r1")).kind == "admitted"
    with pytest.raises(SpeechError, match="cancelled"):
        await fake.admit("r2")
