"""Good requests that are turned away: nobody serves, too many wait, or something is wrong here."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.door import AT_ONCE, Door
from shared.clock import Countdown
from tests.gateway.world import World

HELLO = {"input": "Hello."}


async def test_without_a_worker_the_answer_is_immediate(world: World) -> None:
    """No worker of the artifact: 503 at once, retryable, with the time to retry after."""
    world.worker.queue.farewell()

    answer = await world.refused({**HELLO, "request_id": "r1", "cancellation_id": "c1"})

    assert (answer.status, answer.code) == (503, "no_ready_worker")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["x-should-retry"] == "true"
    assert answer.headers["x-psionic-cancellation-id"] == "c1"
    assert answer.headers["x-psionic-csm-artifact-id"] == world.artifact.artifact_id
    assert (answer.headers["x-psionic-request-id"], answer.error["request_id"]) == ("r1", "r1")
    assert answer.error["fallback_recommended"] is True
    assert not world.redis.keys("t:job:*")


REFUSAL = {"code": "csm_model_unavailable", "reason": "no weights", "pending_phases": ["fetch"]}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"state": "loading"}, "runtime_unavailable"),
        ({"state": "draining"}, "draining"),
        ({"state": "unavailable", "refusal": REFUSAL}, "csm_model_unavailable"),
        (
            {
                "state": "unavailable",
                "artifact_id": "",
                "refusal": {"code": "artifact_unavailable"},
            },
            "no_ready_worker",
        ),
    ],
)
async def test_a_worker_that_does_not_serve_says_why(
    world: World, document: dict[str, Any], code: str
) -> None:
    """With workers alive and none ready, the refusal is theirs."""
    world.worker.beat(lanes=0, **document)

    answer = await world.refused(HELLO)

    assert (answer.status, answer.code) == (503, code)
    assert answer.error["served_backend"] == "none"
    assert answer.headers["x-psionic-served-backend"] == "none"


async def test_a_full_queue_is_refused(world: World) -> None:
    """Past the bound of the queue: 429 with the time to retry after, and no job."""
    calls = [world.post({**HELLO, "request_id": f"r{number}"}) for number in range(16)]
    for _ in calls:
        await asyncio.wait_for(world.worker.hints.get(), 20)

    answer = await world.refused({**HELLO, "request_id": "last"})

    assert (answer.status, answer.code) == (429, "queue_full")
    assert answer.error["type"] == "overloaded_error"
    assert int(answer.headers["retry-after"]) >= 1
    assert len(world.redis.keys("t:job:*")) == 16
    load = (await world.get("/psionic/csm/load")).json()
    assert (load["queue_depth"], load["refused_recently"]) == (16, 1)
    assert load["refused_codes"] == {"queue_full": 1}


async def test_memory_near_its_limit_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Redis near its memory limit nothing new is let in."""

    async def info(_: str) -> dict[str, int]:
        return {"maxmemory": 100, "used_memory": 90}

    monkeypatch.setattr(world.gateway.facts._load._redis, "info", info)

    answer = await world.refused(HELLO)

    assert (answer.status, answer.code) == (503, "queue_memory_low")
    assert not world.redis.keys("t:job:*")


async def test_a_draining_gateway_turns_new_work_away(world: World) -> None:
    """New requests are refused, and those inside are served to their end."""
    inside = world.post(HELLO)
    claim = await world.worker.claim()
    world.gateway.drain()

    answer = await world.refused(HELLO)
    ready = await world.get("/health/ready")
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    assert (answer.status, answer.code) == (503, "draining")
    assert (ready.status, ready.json()["reasons"]) == (503, ["draining"])
    assert (await inside.answer()).status == 200


async def test_nobody_waits_at_the_door_past_their_timeout(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short timeout ends the wait before the request was even looked at."""
    door = world.gateway.speech.door
    monkeypatch.setattr(door, "_wait_s", 600)
    async with AsyncExitStack() as inside:
        for _ in range(AT_ONCE):
            await inside.enter_async_context(door.turn())

        answer = await world.refused({**HELLO, "timeout_ms": 20})

    assert (answer.status, answer.code) == (429, "too_many_waiting")


async def test_a_timeout_that_passes_before_the_queue_is_asked_is_no_crowd(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else waits: it is the caller's timeout that can't be met."""
    monkeypatch.setattr(Countdown, "remaining_ms", property(lambda _: 300.0))

    answer = await world.refused({**HELLO, "timeout_ms": 1})

    assert (answer.status, answer.code) == (429, "deadline_unmeetable")
    assert answer.headers["retry-after"] == "1"


async def test_a_crowd_at_the_door_is_an_overload_and_no_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever isn't admitted in time because of all the others hears that, with a retry."""
    monkeypatch.setattr(world.gateway.speech, "door", Door(2, 0.05))
    entered = asyncio.Semaphore(0)

    async def endless(_: Any) -> None:
        entered.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(world.gateway.listeners, "join", endless)
    inside = [world.post({"input": "Hi."}) for _ in range(2)]
    for _ in inside:
        await entered.acquire()

    answer = await world.refused(HELLO)

    assert (answer.status, answer.code) == (429, "too_many_waiting")
    assert answer.headers["retry-after"] == "1"


async def test_a_defect_is_an_internal_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw answers in the envelope too, and says nothing of the text."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret text")

    monkeypatch.setattr(world.gateway.listeners, "join", broken)

    call = world.post({"input": "a secret text"})
    answer = await call.answer()

    assert (answer.status, answer.code) == (500, "internal_error")
    assert "secret" not in json.dumps(answer.json())
    with pytest.raises(ZeroDivisionError):
        await call.task
