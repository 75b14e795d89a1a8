"""How callers hear of their jobs: every event, in order, once, without a connection each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.admission import AdmitRequest, Admitted
from scheduler.listeners import UNSAID_AT_ONCE, Caller
from scheduler.queue import LanePost
from scheduler.subscriptions import START, WINDOW
from shared.errors import SpeechError
from shared.messages import Claimed, End, Event, FrameRecord
from tests.conftest import RedisServer, until
from tests.scheduler.conftest import Deployment, frame, speech_job, terminal


@pytest.fixture
async def listening(deployment: Deployment) -> AsyncIterator[Deployment]:
    """A deployment whose gateway reads and renews."""
    deployment.reader.start()
    deployment.listeners.start()
    yield deployment
    await deployment.listeners.close()
    await deployment.reader.close()


async def heard(caller: Caller) -> list[Event]:
    """All events up to the end."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], End):
        events.append(await asyncio.wait_for(caller.next_event(), 20))
    return events


def shape(events: list[Event]) -> list[str | int]:
    return [
        event.index if isinstance(event, FrameRecord) else type(event).__name__ for event in events
    ]


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
    assert isinstance(await asyncio.wait_for(early.next_event(), 5), Claimed)

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
        events = [await asyncio.wait_for(caller.next_event(), 5) for _ in range(2)]
        assert shape(events) == ["Claimed", 0]
    await deployment.reader.close()


async def test_who_attaches_late_hears_the_whole_answer(listening: Deployment) -> None:
    """A second caller that attaches in mid-stream gets every frame from the first."""
    work = listening.worker()
    first = await listening.join("r1")
    claim = listening.claim(work)
    listening.post(work, claim, 0, 1)
    for _ in range(3):
        await asyncio.wait_for(first.next_event(), 5)

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
    assert isinstance(await asyncio.wait_for(caller.next_event(), 5), Claimed)
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

    events = [await asyncio.wait_for(caller.next_event(), 5) for _ in range(3)]

    assert shape(events) == ["Claimed", 0, 1]
    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(caller.next_event(), 5)


async def test_an_answer_outlives_its_listeners_silence(fake: Deployment) -> None:
    """Whoever counts as listening finds the answer, however short results are kept for others."""
    object.__setattr__(fake.settings, "result_ttl_ms", 1000)
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


async def test_the_last_caller_that_leaves_abandons_the_job(listening: Deployment) -> None:
    """With two callers the first to leave changes nothing; with the last the work stops."""
    work = listening.worker()
    first, second = await listening.join("r1"), await listening.join("r1")
    claim = listening.claim(work)

    await first.leave()
    assert listening.post(work, claim, 0) == ["ok"]
    await second.leave()

    assert listening.post(work, claim, 1) == ["cancelled"]


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
    """A caller that waits long stays a listener, through many lapses' time."""
    object.__setattr__(real.settings, "listener_renew_ms", 50)
    real.reader.start()
    real.listeners.start()
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)
    deadline = asyncio.get_running_loop().time() + 3 * real.settings.listener_ttl_ms / 1000
    while asyncio.get_running_loop().time() < deadline:
        work.renew([(claim.job_id, claim.execution)])
        assert real.reap().abandoned == 0
        await asyncio.sleep(0.05)

    assert real.post(work, claim, 0) == ["ok"]
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_a_gateway_hears_again_after_redis_restarts(
    real: Deployment, redis_server: RedisServer
) -> None:
    """Redis away and back with its file: the reader goes on by itself and nothing is missed."""
    real.reader.start()
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 5), Claimed)

    with capture_logs() as logs:
        redis_server.stop(kill=True)
        await until(lambda: any(line["event"] == "event_reader_lost_redis" for line in logs))
    redis_server.start()
    real.post(work, claim, 0)

    event = await asyncio.wait_for(caller.next_event(), 5)
    assert isinstance(event, FrameRecord)
    await caller.leave()
    await real.reader.close()


async def test_a_job_that_redis_lost_is_an_error_not_a_wait(
    real: Deployment, redis_server: RedisServer
) -> None:
    """When another Redis stands behind the name, waiting callers get a code, not silence."""
    object.__setattr__(real.settings, "listener_renew_ms", 50)
    real.reader.start()
    real.listeners.start()
    real.worker()
    caller = await real.join("r1")

    await real.aredis.flushall()

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await asyncio.wait_for(caller.next_event(), 5)
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_a_gateway_that_was_silent_too_long_answers_its_callers(real: Deployment) -> None:
    """Callers whose job was abandoned while their gateway was stopped hear of it, with a code."""
    work = real.worker()
    caller = await real.join("r1")
    claim = real.claim(work)
    object.__setattr__(real.settings, "listener_renew_ms", 50)

    def abandoned() -> bool:
        work.renew([(claim.job_id, claim.execution)])
        return real.reap().abandoned == 1

    await until(abandoned)
    real.reader.start()
    real.listeners.start()

    with pytest.raises(SpeechError, match="queue_unavailable"):
        await heard(caller)
    await caller.leave()
    await real.listeners.close()
    await real.reader.close()


async def test_redis_away_is_a_code_and_recovers(
    real: Deployment, redis_server: RedisServer
) -> None:
    """Every call of the gateway's side says queue_unavailable while Redis is away."""
    redis_server.stop(kill=True)
    for call in (
        real.join("r1"),
        real.cancellation.cancel("p", "request", "r1"),
        real.results.find("p", "r1"),
        real.load.snapshot(),
    ):
        with pytest.raises(SpeechError, match="queue_unavailable"):
            await call
    redis_server.start()

    real.worker()
    assert (await real.join("r1")).admitted.kind == "admitted"


def test_text_does_not_show_in_a_jobs_repr() -> None:
    """A job that ends up in a log or a traceback shows its id and not its text."""
    assert "Hello" not in repr(speech_job("r1"))


async def test_redis_s_clock_put_back_makes_nobody_deaf(fake: Deployment) -> None:
    """After an hour's jump back, a gateway that had heard of jobs before hears of the next ones,
    though the ids in its new stream are lower."""
    fake.reader.start()
    for step in (-3_600_000, 0):
        work = fake.worker()
        caller = await fake.join(f"r{step}")
        claim = fake.claim(work)
        fake.post(work, claim, 0)
        work.end(claim.job_id, claim.execution, terminal())
        assert shape(await heard(caller)) == ["Claimed", 0, "End"]
        await caller.leave()
        fake.redis.delete(fake.keys.wake("g1"))  # as a minute without news does
        await until(lambda: fake.reader._wake_position == START, 10)
        fake.advance_ms(step)
    await fake.reader.close()


async def test_a_stream_that_began_anew_is_read_from_its_start(fake: Deployment) -> None:
    """Also when it came and went between two looks."""
    fake.reader._wake_position = b"99999999999999-0"
    fake.worker()
    caller = await fake.join("r1")
    fake.claim(fake.worker())
    fake.reader.start()

    assert isinstance(await asyncio.wait_for(caller.next_event(), 10), Claimed)
    await fake.reader.close()


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
    for number in range(UNSAID_AT_ONCE + 1):
        deployment.listeners._say_later(f"t-{number}", f"g1|gone-{number}")
    deployment.listeners._say_later(last.job_id, last.name)

    await deployment.listeners._say_unsaid()

    assert deployment.field(last.job_id, "cancel") == "abandoned"
    assert list(deployment.listeners._unsaid) == ["g1|gone-0", "g1|gone-1"]
    await deployment.listeners._say_unsaid()
    assert not deployment.listeners._unsaid


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
