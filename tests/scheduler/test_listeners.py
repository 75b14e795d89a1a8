"""Who listens to a job: memberships are renewed, and who leaves last takes the job with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.admission import AdmitRequest, Admitted
from scheduler.departures import SAID_AT_ONCE
from scheduler.listeners import Caller
from tests.scheduler.conftest import Deployment, terminal
from tests.scheduler.hearing import heard, outlasts, shape


async def test_the_last_caller_that_leaves_abandons_the_job(listening: Deployment) -> None:
    """With two callers the first to leave changes nothing; with the last the work stops."""
    work = listening.worker()
    first, second = await listening.join("r1"), await listening.join("r1")
    claim = listening.claim(work)

    await first.leave()
    assert listening.post(work, claim, 0) == ["ok"]
    await second.leave()

    assert listening.post(work, claim, 1) == ["cancelled"]


async def test_who_leaves_while_many_are_renewed_is_not_renewed(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewal of a crowd takes several calls: nobody comes back who left between two of them, so
    that the last one who leaves takes the job along.
    """
    monkeypatch.setattr("scheduler.listeners.RENEW_BATCH", 1)
    work = deployment.worker()
    stays, leaves = [await deployment.join("r1") for _ in range(2)]
    claim = deployment.claim(work)
    renew = deployment.listeners._renew

    async def renew_and_leave(callers: list[Caller]) -> None:
        await renew(callers)
        await leaves.leave()

    monkeypatch.setattr(deployment.listeners, "_renew", renew_and_leave)
    await deployment.listeners._renew_all()

    listeners = deployment.keys.listeners(claim.job_id)
    assert deployment.redis.zrange(listeners, 0, -1) == [stays.name.encode()]
    await stays.leave()
    assert deployment.post(work, claim, 0) == ["cancelled"]


async def test_an_abandoned_request_speaks_again(listening: Deployment) -> None:
    """A retry after a dropped connection is a new generation, not an echo of the abandonment."""
    work = listening.worker()
    dropped = await listening.join("r1")
    claim = listening.claim(work)
    await dropped.leave()

    again = await listening.join("r1")
    work.end(claim.job_id, claim.execution, terminal("cancelled"))
    fresh = listening.claim(work)
    work.end(fresh.job_id, fresh.execution, terminal())

    assert again.admitted.kind == "admitted"
    assert fresh.job_id == again.job_id != dropped.job_id
    assert shape(await heard(again)) == ["Claimed", "End"]


async def test_leaving_a_queued_job_takes_it_out(listening: Deployment) -> None:
    """A caller that goes away while its job waits frees its place at once."""
    work = listening.worker()
    caller = await listening.join("r1")

    await caller.leave()
    await caller.leave()

    assert listening.state(caller.job_id) == "ended"
    assert work.claim("e") is None


async def test_a_caller_cancelled_while_it_joins_leaves_nothing(real: Deployment) -> None:
    """A client that goes away during admission leaves no job behind that nobody hears."""
    real.worker()
    task = asyncio.create_task(real.join("r1"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    depth = (await real.load.snapshot()).queues
    assert all(load.depth == 0 for load in depth.values())


async def test_memberships_are_renewed(real: Deployment) -> None:
    """A caller that waits for longer than a membership lasts stays a listener."""
    real.change(listener_renew_ms=50)
    real.reader.start()
    real.listeners.start()
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)

    await outlasts(real, work, claim)

    assert real.post(work, claim, 0) == ["ok"]
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_a_caller_that_goes_while_it_attaches_is_no_ghost(deployment: Deployment) -> None:
    """One that Redis has attached to another's job, and that has gone before it hears so, listens
    no more; the job goes on for the other, and ends with it."""
    work = deployment.worker()
    first = await deployment.join("r1")
    attached = asyncio.Event()
    admit = deployment.admission.admit

    async def admit_and_hang(request: AdmitRequest, job_id: str, listener: str) -> Admitted:
        await admit(request, job_id, listener)
        attached.set()
        await asyncio.Event().wait()
        raise AssertionError

    deployment.admission.admit = admit_and_hang  # type: ignore[method-assign]
    second = asyncio.create_task(deployment.join("r1"))
    await attached.wait()
    second.cancel()
    await asyncio.wait({second})

    listeners: Any = deployment.redis.zrange(deployment.keys.listeners(first.job_id), 0, -1)
    assert listeners == [first.name.encode()]
    claim = deployment.claim(work)
    assert deployment.post(work, claim, 0) == ["ok"]
    await first.leave()
    assert deployment.post(work, claim, 1) == ["cancelled"]


async def test_departures_that_pile_up_delay_no_renewal(deployment: Deployment) -> None:
    """Each round says a bounded number of them, the latest first, until all are said."""
    work = deployment.worker(lanes=4)
    last = await deployment.join("last")
    deployment.claim(work)
    for number in range(SAID_AT_ONCE + 1):
        deployment.listeners.departures.keep(f"t-{number}", f"g1|gone-{number}")
    deployment.listeners.departures.keep(last.job_id, last.name)

    await deployment.listeners.departures.say_kept()

    assert deployment.field(last.job_id, "cancel") == "abandoned"
    assert len(deployment.listeners.departures) == 2
    await deployment.listeners.departures.say_kept()
    assert len(deployment.listeners.departures) == 0
