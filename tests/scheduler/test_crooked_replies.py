"""Whatever Redis says, or answers in its place: a code for callers, and loops that live on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from scheduler.asking import asking
from scheduler.business_outcomes import BusinessOutcomes
from scheduler.connections import connect_async
from scheduler.scripts import AsyncScripts
from shared.errors import SpeechError
from shared.messages import Claimed
from tests.conftest import RedisServer, until
from tests.crooked import GARBAGE, ODD, REFUSALS, CrookedWire
from tests.scheduler.conftest import Deployment, queue_settings, terminal
from tests.scheduler.hearing import heard, shape

pytestmark = pytest.mark.redis

NOT_NOW = {"queue_unavailable", "queue_memory_low"}
ALL = REFUSALS | GARBAGE | ODD
HARMLESS = {*ODD, "a length below zero"}
"""What may pass for an answer, if to another question."""


@pytest.fixture
async def crooked(wire: CrookedWire, redis_server: RedisServer) -> AsyncIterator[Deployment]:
    """A deployment whose gateway has that wire to Redis, and whose worker has a good one."""
    aclient = connect_async(await wire.open(), timeout_s=5)
    settings = queue_settings(lease_ms=60_000, listener_ttl_ms=60_000, listener_renew_ms=20)
    with redis_server.client() as client:
        yield Deployment(client, aclient, settings, lambda _: None)
    await aclient.aclose()


Question = Callable[[Deployment], Awaitable[Any]]

QUESTIONS: dict[str, Question] = {
    "admit": lambda d: d.admit("new"),
    "join": lambda d: d.join("new"),
    "cancel": lambda d: d.cancellation.cancel("p", "request", "r1"),
    "find": lambda d: d.results.find("p", "r1"),
    "clock": lambda d: d.results.clock("job"),
    "kept": lambda d: d.results.kept_ms("job"),
    "frames": lambda d: d.frames("job"),
    "load": lambda d: d.load.snapshot(),
    "outcome": lambda d: BusinessOutcomes(d.aredis, "t").record("p", "r1", "{}"),
}
"""All that a gateway asks for a caller."""


async def code_of(answer: Awaitable[Any]) -> str | None:
    try:
        await answer
    except SpeechError as refusal:
        return refusal.code
    return None


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
async def test_what_is_no_answer_is_a_refusal_for_now(
    crooked: Deployment, wire: CrookedWire, question: Question
) -> None:
    """No reply makes anything but a refusal of a question; some odd ones may pass for an answer.
    With the true replies back, so are the answers.
    """
    crooked.worker()
    for name, reply in ALL.items():
        wire.always(reply)
        code = await code_of(question(crooked))
        assert code in NOT_NOW or (code is None and name in HARMLESS), name
    wire.answer = None

    await question(crooked)


@pytest.mark.parametrize("name", ["no permission", "a password", "too old", "http", "an integer"])
async def test_what_redis_said_is_told_an_operator(
    crooked: Deployment, wire: CrookedWire, name: str
) -> None:
    """By the log of what renews callers or by that of the question; never with what was asked."""
    wire.always(ALL[name])

    with capture_logs() as logs:
        crooked.listeners.start()
        with pytest.raises(SpeechError):
            await crooked.load.snapshot()
        await until(lambda: any("error" in line for line in logs))
        await crooked.listeners.close()

    said = {
        "no permission": "this user has no permissions",
        "a password": "Authentication required",
        "too old": "unknown command",
        "http": "no reply of a Redis",
        "an integer": "no reply to what was asked",
    }[name]
    told = " ".join(str(line.get("error")) for line in logs)
    assert said in told
    assert "a text" not in told
    assert "400" not in told


@pytest.mark.parametrize("kind", [REFUSALS, GARBAGE, ODD], ids=["refusals", "garbage", "odd"])
async def test_the_loops_outlive_every_reply(
    crooked: Deployment, wire: CrookedWire, kind: dict[str, bytes]
) -> None:
    """Reader and renewal go on, and whoever listens hears the rest of their job afterwards."""
    work = crooked.worker()
    crooked.reader.start()
    crooked.listeners.start()
    caller = await crooked.join("r1")
    claim = crooked.claim(work)
    assert isinstance(await asyncio.wait_for(caller.next_event(), 20), Claimed)

    for name, reply in kind.items():
        wire.always(reply)
        crooked.post(work, claim, 0)  # wakes the reader
        await asyncio.sleep(0.06)
        assert (crooked.reader.alive, crooked.listeners.alive) == (True, True), name
    wire.answer = None
    crooked.post(work, claim, 1)
    work.end(claim.job_id, claim.execution, terminal())

    assert shape(await heard(caller)) == [0, 1, "End"]
    await caller.leave()
    await crooked.listeners.close()
    await crooked.reader.close()


async def test_a_reply_too_many_is_nobody_s_answer(crooked: Deployment, wire: CrookedWire) -> None:
    """What comes after a reply is not the reply to the next question, of whichever caller."""
    wire.answer = lambda command, reply: reply + b"$6\r\nothers\r\n" * (command != "CLIENT")
    for number in range(5):
        crooked.redis.set("n", number)
        assert await crooked.aredis.get("n") == str(number).encode()


@pytest.mark.parametrize("name", ["http", "an integer in words", "a tower", "a long line"])
async def test_garbage_is_asked_again_elsewhere(
    crooked: Deployment, wire: CrookedWire, name: str
) -> None:
    """One connection that goes wrong costs its question nothing and is used no more."""
    await crooked.aredis.set("n", "1")
    before = wire.opened

    def once(command: str, reply: bytes) -> bytes:
        wire.answer = None
        return GARBAGE[name]

    wire.answer = once

    assert await crooked.aredis.get("n") == b"1"
    assert wire.opened == before + 1


async def test_a_reply_to_something_else_ends_its_connection(
    crooked: Deployment, wire: CrookedWire
) -> None:
    """A reply that can be read and is of another kind: the next question takes a new connection."""
    await crooked.aredis.ping()
    before = wire.opened
    wire.always(ODD["an integer"])
    with pytest.raises(SpeechError):
        await crooked.results.find("p", "r1")
    wire.answer = None

    assert await crooked.results.find("p", "r1") is None
    assert wire.opened == before + 1
    assert await crooked.results.find("p", "r1") is None
    assert wire.opened == before + 1


async def test_a_script_that_nobody_knows_is_sent_along(
    crooked: Deployment, wire: CrookedWire
) -> None:
    """However often Redis forgets them, and whatever it answered before."""
    scripts = AsyncScripts(crooked.aredis, "t")
    for _ in range(2):
        crooked.redis.script_flush()
        assert await scripts.call("cancel", "p", "request", "r1", 1000, *crooked.settings.ending)
    wire.always(ODD["nothing"])
    await scripts.call("cancel", "p", "request", "r1", 1000, *crooked.settings.ending)
    wire.answer = None
    assert await scripts.call("cancel", "p", "request", "r1", 1000, *crooked.settings.ending)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.eval("return {} .. 1", 0),
        lambda client: client.eval("no_such_thing()", 0),
        lambda client: client.set("key", None),
    ],
    ids=["a script's type", "a script's word", "an argument"],
)
async def test_what_no_redis_could_do_is_a_defect(crooked: Deployment, ask: Any) -> None:
    """It is not passed off as Redis's absence."""
    with pytest.raises(RedisError), asking(crooked.aredis):
        await ask(crooked.aredis)
