"""Every code of the service, row by row: a request that gets it, and what it is on the wire.

The table is spelled out here a second time on purpose: a status that changes in the code alone
breaks its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.datastructures import Headers

from cli.redis_server import free_port
from scheduler.connections import connect_async
from shared.errors import CODES, PENDING_PHASES
from shared.settings import GatewaySettings
from tests.gateway import test_bad_requests
from tests.gateway.world import TIMEOUT_MS, Answer, World, gateway_settings

KEY = "a-key-of-this-test"
AUTH = {"authorization": f"Bearer {KEY}"}
HELLO = {"input": "Hello.", "request_id": "r1"}
INVALID, BACKEND, OVERLOADED = "invalid_request_error", "backend_unavailable", "overloaded_error"
GENERATION, TIMEOUT = "generation_error", "timeout_error"

SOMETIMES = ("retry-after", "www-authenticate", "allow")

Make = Callable[[World], Awaitable[Answer]]


@dataclass(frozen=True)
class Row:
    """``headers`` are there besides those of every refusal; ``names_call``: so are those of a
    request that got past validation.
    """

    code: str
    status: int
    type: str
    retryable: bool
    make: Make
    headers: tuple[str, ...] = ()
    names_call: bool = False

    def __str__(self) -> str:
        return self.code


async def refused(world: World, body: Any = HELLO, **more: Any) -> Answer:
    return await world.refused(body, headers=AUTH, **more)


def static(code: str) -> Make:
    """The first request of the door's own table that gets this code."""
    row = next(each for each in test_bad_requests.ROWS if each.code == code)

    async def make(world: World) -> Answer:
        headers = {**AUTH, **row.headers}
        call = world.call(row.method, row.path, row.body, raw=row.raw, headers=headers)
        return await call.answer()

    return make


def stated(code: str, reason: str = "error") -> Make:
    """The worker took the job and states this failure."""

    async def make(world: World) -> Answer:
        call = world.post(HELLO, headers=AUTH)
        claim = await world.worker.claim()
        world.worker.end(claim, 0, reason=reason, failure_code=code)
        return await call.answer()

    return make


def unready(code: str) -> Make:
    """The one worker is unavailable and says why."""

    async def make(world: World) -> Answer:
        refusal = {"code": code, "reason": "why", "pending_phases": ["what_to_do"]}
        world.worker.beat(lanes=0, state="unavailable", refusal=refusal)
        return await refused(world)

    return make


def standing(state: str) -> Make:
    async def make(world: World) -> Answer:
        world.worker.beat(lanes=0, state=state)
        return await refused(world)

    return make


async def no_key(world: World) -> Answer:
    return await world.refused(HELLO)


async def other_meaning(world: World) -> Answer:
    first = world.post(HELLO, headers=AUTH)
    await world.worker.claim()
    answer = await refused(world, {**HELLO, "input": "Bye."})
    await first.hang_up()
    return answer


async def judged(world: World, *outcomes: str) -> Answer:
    call = world.post(HELLO, headers=AUTH)
    await world.worker.speak(1)
    await call.answer()
    for outcome in outcomes:
        answer = await refused(world, {"outcome": outcome}, path="/psionic/csm/evidence/r1/outcome")
    return answer


async def not_an_outcome(world: World) -> Answer:
    return await judged(world, "great")


async def another_outcome(world: World) -> Answer:
    return await judged(world, "accepted", "rejected")


async def cancelled(world: World) -> Answer:
    await refused(world, {"request_id": "r1"}, path="/psionic/csm/cancellations")
    return await refused(world)


async def full(world: World) -> Answer:
    for number in range(16):
        world.post({**HELLO, "request_id": f"w{number}"}, headers=AUTH)
    for _ in range(16):
        await asyncio.wait_for(world.worker.hints.get(), 10)
    return await refused(world)


async def hopeless(world: World) -> Answer:
    """The warm-up's pace rules out that the lanes are free in time."""
    document = {"worker_id": "w1", "state": "ready"}
    world.worker.queue.heartbeat(document, lanes=2, step_ms=100.0)
    for number in range(2):
        body = {**HELLO, "request_id": f"w{number}", "max_audio_length_ms": 4000}
        world.post({**body, "timeout_ms": 30_000}, headers=AUTH)
    for _ in range(2):
        await world.worker.claim()
    return await refused(world, {**HELLO, "timeout_ms": 1000})


async def crowded(world: World) -> Answer:
    world.gateway.open_requests.most = 0
    return await refused(world)


async def defect(world: World) -> Answer:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    world.gateway.listeners.join = broken
    call = world.post(HELLO, headers=AUTH)
    answer = await call.answer()
    await asyncio.gather(call.task, return_exceptions=True)
    return answer


async def alone(world: World) -> Answer:
    world.worker.queue.farewell()
    return await refused(world)


async def draining(world: World) -> Answer:
    world.gateway.drain()
    return await refused(world)


async def away(world: World) -> Answer:
    nowhere = connect_async(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.2)
    world.gateway.facts._load._redis = nowhere
    world.gateway.facts._load._scripts._redis = nowhere
    answer = await refused(world)
    await nowhere.aclose()
    return answer


async def memory_low(world: World) -> Answer:
    async def info(_: str) -> dict[str, int]:
        return {"maxmemory": 100, "used_memory": 90}

    world.gateway.facts._load._redis.info = info
    return await refused(world)


async def unclaimed(world: World) -> Answer:
    return await refused(world, {**HELLO, "timeout_ms": 500})


async def unfinished(world: World) -> Answer:
    call = world.post({**HELLO, "timeout_ms": TIMEOUT_MS}, headers=AUTH)
    await world.worker.claim()
    return await call.answer()


def at_the_door(code: str, status: int = 400, type_: str = INVALID, *headers: str) -> Row:
    return Row(code, status, type_, False, static(code), headers)


RETRY = ("retry-after",)

TABLE = [
    at_the_door("malformed_json"),
    at_the_door("artifact_unavailable"),
    at_the_door("empty_request_id"),
    at_the_door("invalid_request_id"),
    at_the_door("empty_cancellation_id"),
    at_the_door("invalid_cancellation_id"),
    at_the_door("invalid_timeout_ms"),
    at_the_door("empty_input"),
    at_the_door("invalid_input_text"),
    at_the_door("input_too_long"),
    at_the_door("input_exceeds_budget"),
    at_the_door("invalid_stream_format"),
    at_the_door("unsupported_response_format"),
    at_the_door("voice_profile_unavailable"),
    at_the_door("invalid_temperature"),
    at_the_door("invalid_top_k"),
    at_the_door("invalid_max_audio_length_ms"),
    at_the_door("invalid_context_policy"),
    at_the_door("invalid_seed"),
    at_the_door("invalid_voice_turn_budget_ms"),
    at_the_door("unknown_parameter"),
    at_the_door("unsupported_parameter"),
    at_the_door("conflicting_parameter"),
    Row("context_overflow", 400, INVALID, False, stated("context_overflow"), (), True),
    Row("invalid_outcome", 400, INVALID, False, not_an_outcome),
    # A manifest with such a voice doesn't load, and the door checks what the sampler would refuse.
    Row("voice_profile_unapproved", 400, INVALID, False, stated("voice_profile_unapproved")),
    Row("invalid_generation_window", 400, INVALID, False, stated("invalid_generation_window")),
    Row("unsupported_sampling", 400, INVALID, False, stated("unsupported_sampling")),
    Row("unauthorized", 401, "authentication_error", False, no_key, ("www-authenticate",)),
    at_the_door("model_unavailable", 404, "not_found_error"),
    at_the_door("route_not_found", 404, "not_found_error"),
    at_the_door("result_not_found", 404, "not_found_error"),
    at_the_door("method_not_allowed", 405, INVALID, "allow"),
    Row("request_id_conflict", 409, "conflict_error", False, other_meaning, (), True),
    Row("outcome_conflict", 409, "conflict_error", False, another_outcome),
    Row("cancelled", 409, "conflict_error", False, cancelled, (), True),
    at_the_door("body_too_large", 413),
    at_the_door("unsupported_media_type", 415),
    at_the_door("invalid_type", 422),
    Row("queue_full", 429, OVERLOADED, True, full, RETRY, True),
    Row("deadline_unmeetable", 429, OVERLOADED, True, hopeless, RETRY, True),
    Row("too_many_waiting", 429, OVERLOADED, True, crowded, RETRY),
    Row("internal_error", 500, "server_error", True, defect),
    Row("no_audio_generated", 502, GENERATION, True, stated("no_audio_generated"), (), True),
    Row("csm_synthesis_failed", 502, GENERATION, True, stated("csm_synthesis_failed"), (), True),
    Row("worker_lost", 502, GENERATION, True, stated("worker_lost", "worker_lost"), (), True),
    Row("no_ready_worker", 503, BACKEND, True, alone, RETRY, True),
    Row("runtime_unavailable", 503, BACKEND, True, standing("loading"), RETRY, True),
    Row("draining", 503, BACKEND, True, draining, RETRY, True),
    Row("queue_unavailable", 503, BACKEND, True, away, RETRY, True),
    Row("queue_memory_low", 503, BACKEND, True, memory_low, RETRY, True),
    *(
        Row(code, 503, BACKEND, True, unready(code), RETRY, True)
        for code in PENDING_PHASES
        if code != "artifact_unavailable"
    ),
    Row("queue_timeout", 504, TIMEOUT, True, unclaimed, (), True),
    Row("generation_timeout", 504, TIMEOUT, True, unfinished, (), True),
]


@pytest.fixture
def settings() -> GatewaySettings:
    """A deployment with a key, so that every row also holds behind authentication."""
    return gateway_settings({"PSIONIC_CSM_API_KEYS": KEY})


@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_a_code_is_what_the_table_says(world: World, row: Row) -> None:
    """Status, type, advice on retries and headers of each code, from a request that gets it."""
    answer = await row.make(world)

    error = answer.error
    assert (answer.status, answer.code) == (row.status, row.code)
    assert (error["type"], error["retryable"]) == (row.type, row.retryable)
    assert error["fallback_recommended"] is row.retryable
    assert error["rollback_target"] == "fallback_to_current_autopilot_tts_provider"
    assert error["message"]
    headers = Headers(answer.headers)
    assert headers["content-type"] == "application/json"
    assert headers["x-psionic-csm-failure-code"] == row.code
    assert headers["x-should-retry"] == ("true" if row.retryable else "false")
    assert {name for name in SOMETIMES if name in headers} == set(row.headers)
    if row.names_call:
        assert headers["x-psionic-request-id"] == headers["x-request-id"] == "r1"
        assert error["request_id"] == "r1"
        assert headers["x-psionic-csm-artifact-id"] == world.artifact.artifact_id
        assert headers["x-psionic-csm-rollback-target"] == error["rollback_target"]
    if "retry-after" in row.headers:
        assert 1 <= int(headers["retry-after"]) <= 600


def test_the_table_has_every_code_once() -> None:
    """A new code needs a row: a request that gets it, and what it is on the wire."""
    assert sorted(row.code for row in TABLE) == sorted(CODES)
