"""A gateway's metrics: every answer counted once, by route and outcome, and timed."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from starlette.routing import Route

from gateway.metrics import GatewayMetrics
from scheduler.asking import QueueAway
from scheduler.cancellation import Cancellation
from scheduler.queue import Claim
from shared.errors import CODES
from tests.exposition import promtool, samples
from tests.gateway.world import SPEECH, World

HELLO = {"input": "Hello.", "request_id": "r1"}
JSONL = {"stream": True, "stream_format": "jsonl_base64"}
REQUESTS = "psionic_csm_requests_total"


async def scrape(world: World) -> dict[tuple[str, ...], float]:
    answer = await world.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(answer.body)


def requests(told: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Those that were made, without the scrapes: (code, route, type)."""
    return {
        key[1:]: value
        for key, value in told.items()
        if key[0] == REQUESTS and value and key[2] != "/metrics"
    }


async def test_an_answer_is_counted_and_timed(world: World) -> None:
    """One one-shot answer: one request, one wait, one first frame, no cadence."""
    call = world.post(HELLO)
    await world.worker.speak(3)
    size = len((await call.answer()).body)
    await call.task

    told = await scrape(world)

    assert requests(told) == {("ok", SPEECH, "ok"): 1}
    assert told["psionic_csm_response_bytes_total", SPEECH] == size
    assert told["psionic_csm_request_duration_seconds_count", SPEECH] == 1
    assert told["psionic_csm_queue_duration_seconds_count",] == 1
    assert told["psionic_csm_time_to_first_chunk_seconds_count", "one_shot"] == 1
    assert told["psionic_csm_inter_chunk_seconds_count",] == 0
    assert told["psionic_csm_open_requests",] == 0


async def test_a_job_that_was_handed_back_waited_once(world: World) -> None:
    """A worker that drains gives the attempt back: the claim after it is not the first."""
    call = world.post(HELLO)
    drained = await world.worker.claim()
    world.worker.post(drained, 0)
    world.worker.queue.hand_back(drained.job_id, drained.execution)
    claim = world.worker.queue.claim("another")
    assert isinstance(claim, Claim)
    assert claim.attempt == 1
    world.worker.post(claim, 1)
    world.worker.end(claim, 2)
    assert (await call.answer()).status == 200

    assert (await scrape(world))["psionic_csm_queue_duration_seconds_count",] == 1


async def test_a_cancel_that_is_refused_is_no_speech_turned_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis away: the cancel's answer counts as an answer, not as speech without capacity."""

    async def away(*_: object) -> None:
        raise QueueAway

    monkeypatch.setattr(Cancellation, "cancel", away)
    call = world.post({"request_id": "r1"}, "/psionic/csm/cancellations")
    assert (await call.answer()).code == "queue_unavailable"
    await call.task

    told = await scrape(world)
    assert told["psionic_csm_requests_rejected_total", "queue_unavailable"] == 0
    assert (await world.get("/psionic/csm/load")).json()["refused_recently"] == 0


async def test_a_stream_s_cadence_is_observed(world: World) -> None:
    """Of three frames there are two gaps."""
    call = world.post({**HELLO, **JSONL})
    await world.worker.speak(3)
    await call.answer()
    await call.task

    told = await scrape(world)

    assert told["psionic_csm_time_to_first_chunk_seconds_count", "stream"] == 1
    assert told["psionic_csm_inter_chunk_seconds_count",] == 2


async def test_a_replay_is_no_measure_of_speed(world: World) -> None:
    """An answer from the record counts as a request and in no latency of speech."""
    first = world.post(HELLO)
    await world.worker.speak(2)
    await first.answer()
    again = world.post({**HELLO, **JSONL})
    await again.answer()
    await asyncio.gather(first.task, again.task)

    told = await scrape(world)

    assert requests(told) == {("ok", SPEECH, "ok"): 2}
    assert told["psionic_csm_queue_duration_seconds_count",] == 1
    assert told["psionic_csm_inter_chunk_seconds_count",] == 0


async def test_refusals_are_counted_by_code(world: World) -> None:
    """What the caller did wrong and what we could not do are told apart by the type."""
    await world.refused({"input": ""})
    world.worker.queue.farewell()
    await world.refused(HELLO)
    await world.get("/nowhere")

    told = await scrape(world)

    assert requests(told) == {
        ("empty_input", SPEECH, "invalid_request_error"): 1,
        ("no_ready_worker", SPEECH, "backend_unavailable"): 1,
        ("route_not_found", "unmatched", "not_found_error"): 1,
    }
    assert told["psionic_csm_requests_rejected_total", "no_ready_worker"] == 1
    rejected = [key for key, n in told.items() if key[0].endswith("rejected_total") and n]
    assert len(rejected) == 1


async def test_a_failure_after_the_first_byte_is_counted_too(world: World) -> None:
    """The status was 200, and the count says what came of it."""
    call = world.post({**HELLO, **JSONL})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1, reason="error", failure_code="csm_synthesis_failed")
    assert (await call.answer()).status == 200
    await call.task

    assert requests(await scrape(world)) == {
        ("csm_synthesis_failed", SPEECH, "generation_error"): 1
    }


async def test_a_caller_who_leaves_is_counted(world: World) -> None:
    """Nobody failed: the client went away."""
    call = world.post(HELLO)
    await world.worker.claim()
    await call.hang_up()

    assert requests(await scrape(world)) == {("client_gone", SPEECH, "client_gone"): 1}


async def test_a_defect_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that nobody foresaw is an internal error in the counts as on the wire."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.gateway.listeners, "join", broken)
    call = world.post(HELLO)
    await call.answer()
    with pytest.raises(ZeroDivisionError):
        await call.task

    assert requests(await scrape(world)) == {("internal_error", SPEECH, "server_error"): 1}


async def test_a_probe_that_says_no_is_not_ok(world: World) -> None:
    """A 503 without a code counts apart from what went well."""
    world.gateway.drain()
    await world.get("/health/ready")

    assert requests(await scrape(world)) == {("unsaid", "/health/ready", "unsaid"): 1}


async def test_the_queue_is_read_at_the_scrape(world: World) -> None:
    """Depth and lanes come from Redis, not from what this gateway happens to know."""
    world.post(HELLO)
    await world.worker.hints.get()

    told = await scrape(world)

    queue = world.artifact.queue_name("t")
    assert told["psionic_csm_queue_depth", queue] == 1
    assert told["psionic_csm_queue_lanes", queue] == 2
    assert told["psionic_csm_workers_alive", "ready"] == 1
    assert told["psionic_csm_open_requests",] == 1


async def test_failures_are_there_before_the_first(world: World) -> None:
    """Each code that is our fault has its series at 0, so that the first one is an increase."""
    told = samples((await world.get("/metrics")).body)

    assert told[REQUESTS, "internal_error", SPEECH, "server_error"] == 0
    ours = {key[1] for key in told if key[0] == REQUESTS and key[2] == SPEECH}
    assert ours == {code for code, spec in CODES.items() if spec.status in (429, *range(500, 505))}


async def test_a_defect_of_any_route_is_there_before_the_first(world: World) -> None:
    """The first defect is an increase on whichever route it happens, also on a path without one."""
    told = samples((await world.get("/metrics")).body)

    routes = {route.path for route in world.gateway.app.routes if isinstance(route, Route)}
    foreseen = {key[2] for key in told if key[:2] == (REQUESTS, "internal_error")}
    assert foreseen == {*routes, "unmatched"}
    assert "/psionic/csm/cancellations" in foreseen


def test_a_frame_costs_next_to_nothing() -> None:
    """What a stream adds per frame is thousands of times less than the frame's 80 ms."""
    pace = GatewayMetrics((SPEECH,)).pace(streamed=True, arrived_ms=0.0)
    for _ in range(1000):
        pace.frame()

    quickest = math.inf
    for _ in range(5):
        began = time.process_time()
        for _ in range(1000):
            pace.frame()
        quickest = min(quickest, time.process_time() - began)

    assert quickest < 0.08


async def test_promtool_finds_no_fault(world: World) -> None:
    """Names, types and help are as Prometheus wants them."""
    await world.refused({"input": ""})

    assert promtool("check", "metrics", given=(await world.get("/metrics")).body) == ""
