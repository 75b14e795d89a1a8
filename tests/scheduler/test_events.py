"""How callers hear of their jobs: every event, in order, once, without a connection each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.queue import LanePost
from scheduler.subscriptions import WINDOW
from shared.errors import SpeechError
from shared.messages import Claimed, End, Event, FrameRecord
from tests.scheduler.conftest import Deployment, frame, speech_job, terminal
from tests.scheduler.hearing import heard, shape


async def test_a_caller_hears_everything_in_order(listening: Deployment) -> None:
    """Claim, frames and end arrive in order, each once."""
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    listening.post(work, claim, 0, 1, 2)
    work.end(claim.job_id, claim.execution, terminal())

    events = await heard(caller)

    assert shape(events) == ["Claimed", 0, 1, 2, "End"]
    assert isinstance(events[-1], End)
    assert events[-1].terminal == terminal()


async def test_the_reader_wakes_while_it_blocks(listening: Deployment) -> None:
    """A job admitted while the reader's blocking read is under way is heard at once."""
    work = listening.worker()
    early = await listening.join("early")
    claim_early = listening.claim(work)
    assert isinstance(await asyncio.wait_for(early.next_event(), 20), Claimed)

    late = await listening.join("late")
    claim_late = listening.claim(work)
    heard_late = await asyncio.wait_for(late.next_event(), 0.5)
    listening.post(work, claim_early, 0)
    heard_early = await asyncio.wait_for(early.next_event(), 0.5)

    assert isinstance(heard_late, Claimed)
    assert isinstance(heard_early, FrameRecord)
    assert claim_late.job_id == late.job_id


async def test_a_step_wakes_a_gateway_once(deployment: Deployment) -> None:
    """However many lanes a step's frames are of, they are one entry of the gateway's wake stream,
    and each caller hears its own.
    """
    work = deployment.worker()
    callers = {caller.job_id: caller for caller in [await deployment.join(r) for r in ("a", "b")]}
    claims = [deployment.claim(work) for _ in callers]
    stream = deployment.keys.wake("g1")
    before = int(deployment.redis.xlen(stream))

    work.post([LanePost(claim.job_id, claim.execution, frame(0)) for claim in claims])

    assert int(deployment.redis.xlen(stream)) == before + 1
    deployment.reader.start()
    for claim in claims:
        caller = callers[claim.job_id]
        events = [await asyncio.wait_for(caller.next_event(), 20) for _ in range(2)]
        assert shape(events) == ["Claimed", 0]
    await deployment.reader.close()


async def test_who_attaches_late_hears_the_whole_answer(listening: Deployment) -> None:
    """A second caller that attaches in mid-stream gets every frame from the first."""
    work = listening.worker()
    first = await listening.join("r1")
    claim = listening.claim(work)
    listening.post(work, claim, 0, 1)
    for _ in range(3):
        await asyncio.wait_for(first.next_event(), 20)

    second = await listening.join("r1")
    listening.post(work, claim, 2)
    work.end(claim.job_id, claim.execution, terminal("length"))

    assert second.admitted.kind == "attached"
    assert shape(await heard(first)) == [2, "End"]
    assert shape(await heard(second)) == ["Claimed", 0, 1, 2, "End"]


async def test_what_a_caller_has_not_taken_stays_in_redis(listening: Deployment) -> None:
    """A slow caller is given a few events at a time, in order, and in the end all of them."""
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)
    length = 3 * WINDOW
    listening.post(work, claim, *range(length))
    work.end(claim.job_id, claim.execution, terminal("length"))

    taken: list[Event] = []
    while not taken or not isinstance(taken[-1], End):
        taken.append(await asyncio.wait_for(caller.next_event(), 20))
        await asyncio.sleep(0.002)
        assert len(caller.subscription._window) < WINDOW

    assert shape(taken) == [*range(length), "End"]


async def test_what_is_there_is_heard_before_that_it_is_gone(listening: Deployment) -> None:
    """Told that nothing more will come, a caller still gets everything that came."""
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    listening.post(work, claim, 0, 1)
    caller.subscription.lose()

    events = [await asyncio.wait_for(caller.next_event(), 20) for _ in range(3)]

    assert shape(events) == ["Claimed", 0, 1]
    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(caller.next_event(), 20)


async def test_an_answer_outlives_its_listeners_silence(fake: Deployment) -> None:
    """Whoever counts as listening finds the answer, however short results are kept for others."""
    fake.change(result_ttl_ms=1000)
    work = fake.worker()
    caller = await fake.join("r1")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal("length"))
    fake.advance_ms(fake.settings.listener_ttl_ms - 500)
    fake.reader.start()
    fake.listeners.start()

    assert shape(await heard(caller)) == ["Claimed", 0, "End"]

    await fake.listeners.close()
    await fake.reader.close()


async def test_a_replay_hears_the_whole_answer(listening: Deployment) -> None:
    """A retry after the end gets the recorded events without any worker."""
    work = listening.worker()
    caller = await listening.join("r1")
    claim = listening.claim(work)
    listening.post(work, claim, 0)
    work.end(claim.job_id, claim.execution, terminal())
    await heard(caller)
    await caller.leave()

    again = await listening.join("r1")

    assert again.admitted.kind == "replay"
    assert shape(await heard(again)) == ["Claimed", 0, "End"]


def test_text_does_not_show_in_a_jobs_repr() -> None:
    """A job that ends up in a log or a traceback shows its id and not its text."""
    assert "Hello" not in repr(speech_job("r1"))


async def test_callers_of_one_job_at_two_gateways_are_told_once_each(
    deployment: Deployment,
) -> None:
    """However their memberships alternate in time, a wake entry names the job once."""
    work = deployment.worker()
    for number, gateway in enumerate(("g1", "g2", "g1", "g2")):
        await deployment.admit("r1", listener=f"{gateway}|{number}")
    deployment.claim(work)

    for gateway in ("g1", "g2"):
        entries: Any = deployment.redis.xrevrange(deployment.keys.wake(gateway), count=1)
        assert entries[0][1][b"jobs"].count(b" ") == 0


async def test_news_during_a_read_is_not_read_twice_ahead(deployment: Deployment) -> None:
    """Who is told of news while they are being read isn't given a second window."""
    work = deployment.worker()
    caller = await deployment.join("r1", max_frames=100)
    claim = deployment.claim(work)
    deployment.post(work, claim, *range(2 * WINDOW))
    subscription = caller.subscription
    subscription.news = subscription.hungry = True
    deployment.reader.want(subscription)
    batch = deployment.reader._next_batch()
    reading = asyncio.create_task(deployment.reader._read(batch))
    await asyncio.sleep(0)
    deployment.reader._tell([caller.job_id])
    await reading

    assert deployment.reader._next_batch() == {}
    assert len(subscription._window) == WINDOW
