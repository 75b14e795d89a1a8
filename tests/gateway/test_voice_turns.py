"""A voice turn's budget: the fallback event that opens a stream whose first audio is late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.streamed import (
    AUDIO,
    FRAMED,
    JSONL,
    SSE,
    events,
    stream_name,
    whole,
)
from tests.gateway.world import World, pcm


@pytest.mark.parametrize("body", FRAMED, ids=stream_name)
async def test_a_voice_turn_over_budget_hears_of_the_fallback(
    world: World, body: dict[str, Any]
) -> None:
    """When the first audio is late, one fallback event opens the stream and the work goes on."""
    call = world.post({**body, "voice_turn_budget_ms": 20})
    claim = await world.worker.claim()
    status, headers = await call.start()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    sent = b""
    while not call.finished:
        sent += await call.part()

    assert status == 200
    assert headers["x-psionic-csm-voice-turn-budget-exceeded"] == "true"
    heard = events(sent, stream_name(body))
    fallback = [e for e in heard if "fallback" in (e.get("event"), e.get("type"))]
    assert len(fallback) == 1
    assert fallback[0]["reason"] == "voice_turn_budget_exceeded"
    assert fallback[0]["elapsed_ms"] >= 20
    assert fallback[0]["rollback_target"] == "fallback_to_current_autopilot_tts_provider"
    assert heard.index(fallback[0]) == (0 if body is SSE else 1)
    assert heard[-1]["finish_reason"] == "stop"
    assert heard[-1]["generated_frame_count"] == 1


async def test_a_voice_turn_in_budget_hears_nothing_of_it(world: World) -> None:
    """In time there is no fallback event."""
    answer = await whole(world, {**JSONL, "voice_turn_budget_ms": 30_000})

    assert [e["event"] for e in events(answer.body, "jsonl_base64")] == [
        "start",
        "audio",
        "audio",
        "audio",
        "terminal",
    ]


async def test_a_failure_after_the_fallback_is_an_error_event(world: World) -> None:
    """The fallback event commits the status; what fails after it is told in the stream."""
    call = world.post({**JSONL, "voice_turn_budget_ms": 1})
    await world.worker.hints.get()
    await call.start()
    await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations")

    body = b""
    while not call.finished:
        body += await call.part()

    heard = events(body, "jsonl_base64")
    assert [e["event"] for e in heard] == ["start", "fallback", "error"]
    assert heard[-1]["error"]["code"] == "cancelled"


async def test_a_raw_stream_over_budget_says_so_in_its_head(world: World) -> None:
    """There is no place for an event, so the status waits for the audio, and a header tells it."""
    call = world.post({**AUDIO, "voice_turn_budget_ms": 20})
    claim = await world.worker.claim()
    await asyncio.sleep(0.03)
    world.worker.post(claim, 0)
    world.worker.end(claim, 1)

    answer = await call.answer()

    assert answer.status == 200
    assert answer.headers["x-psionic-csm-voice-turn-budget-exceeded"] == "true"
    assert answer.body.endswith(pcm(0))
