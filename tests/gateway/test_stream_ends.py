"""Streams that end early: by a failure, a deadline, a cancel, or a caller who hangs up."""

from __future__ import annotations

from typing import Any

import pytest

from shared.wav import STREAMING_HEADER
from tests.gateway.streamed import (
    AUDIO,
    FRAMED,
    JSONL,
    TERMINAL_KEYS,
    events,
    stream_name,
    whole,
)
from tests.gateway.world import TIMEOUT_MS, Call, World, pcm


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
async def test_a_failure_before_the_first_audio_is_an_http_error(
    world: World, body: dict[str, Any]
) -> None:
    """Until audio leaves, a stream's failure has its status and the envelope."""
    answer = await whole(world, body, 0, reason="error", failure_code="no_audio_generated")

    assert (answer.status, answer.code) == (502, "no_audio_generated")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-psionic-csm-failure-code"] == "no_audio_generated"


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
async def test_a_deadline_before_the_first_audio_is_an_http_error(
    world: World, body: dict[str, Any]
) -> None:
    """A stream that nobody claimed is a plain 504."""
    answer = await world.refused({**body, "timeout_ms": 500})

    assert (answer.status, answer.code) == (504, "queue_timeout")


@pytest.mark.parametrize(
    ("reason", "code"), [("worker_lost", "worker_lost"), ("error", "no_audio_generated")]
)
@pytest.mark.parametrize("body", FRAMED, ids=stream_name)
async def test_a_failure_after_the_first_audio_is_an_error_event(
    world: World, body: dict[str, Any], reason: str, code: str
) -> None:
    """One error event ends the stream, with the envelope and all that is known. So does what turned
    out to be silence and nothing else."""
    answer = await whole(world, body, 2, reason=reason, failure_code=code)

    last = events(answer.body, stream_name(body))[-1]
    assert answer.status == 200
    assert last.get("event", last.get("type")) == "error"
    assert (last["error"]["code"], last["error"]["type"]) == (code, "generation_error")
    assert set(TERMINAL_KEYS) - {"event"} <= set(last)
    assert (last["finish_reason"], last["failure_code"]) == (reason, code)
    assert (last["request_id"], last["chunk_count"]) == ("r1", 2)
    assert last["fallback_recommended"] is True
    assert b"terminal" not in answer.body
    assert b"audio.done" not in answer.body


async def test_a_raw_stream_that_fails_is_never_finished(world: World) -> None:
    """The last piece of a raw body never comes, so that the transfer is seen to be broken."""
    call = world.post(AUDIO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    await call.start()
    assert await call.part() == STREAMING_HEADER + pcm(0)
    world.worker.end(claim, 1, "error", failure_code="csm_synthesis_failed")

    assert await call.part() == b""
    await call.task

    assert not call.finished
    record = (await world.get("/psionic/csm/speech/r1")).json()
    assert record["terminal"]["failure_code"] == "csm_synthesis_failed"


async def test_a_cancel_ends_a_running_stream_with_its_code(world: World) -> None:
    """A stream that has begun hears of its cancellation in an error event; a retry, to whom it is
    known from the start, in a plain 409.
    """
    call = world.post(JSONL)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    await call.start()
    await world.refused({"request_id": "r1"}, "/psionic/csm/cancellations")
    assert world.worker.post(claim, 1) == ["cancelled"]
    world.worker.end(claim, 1, "cancelled", failure_code="cancelled")

    body = b""
    while not call.finished:
        body += await call.part()

    last = events(body, "jsonl_base64")[-1]
    assert (last["event"], last["error"]["code"]) == ("error", "cancelled")
    assert last["finish_reason"] == "cancelled"
    for stream_format in ("jsonl_base64", "multipart_mixed", "sse", "audio"):
        retry = await world.refused({**JSONL, "stream_format": stream_format})
        assert (retry.status, retry.code) == (409, "cancelled")
        assert retry.headers["x-psionic-csm-replayed"] == "true"


async def test_a_silent_worker_ends_a_running_stream_at_the_deadline(world: World) -> None:
    """The caller's own deadline ends a stream that has begun, too."""
    call = world.post({**JSONL, "timeout_ms": TIMEOUT_MS})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    answer = await call.answer()

    last = events(answer.body, "jsonl_base64")[-1]
    assert (last["event"], last["error"]["code"]) == ("error", "generation_timeout")
    assert last["finish_reason"] == "timeout"
    assert (last["attempt"], last["worker_id"]) == (1, "w1")
    assert last["first_audio_latency_ms"] >= last["queue_wait_ms"] >= 0


async def hang_up_after(world: World, call: Call, frames: int, pieces: int) -> str:
    claim = await world.worker.claim()
    world.worker.post(claim, *range(frames))
    if frames:
        await call.start()
    for _ in range(pieces):
        await call.part()
    await call.hang_up()
    return world.worker.verdict(claim)


@pytest.mark.parametrize("body", [*FRAMED, AUDIO], ids=stream_name)
@pytest.mark.parametrize(("frames", "pieces"), [(0, 0), (1, 0), (1, 1), (2, 2)])
async def test_hanging_up_stops_the_work_at_every_event(
    world: World, body: dict[str, Any], frames: int, pieces: int
) -> None:
    """A client that is gone before, between or after events has its lane freed."""
    assert await hang_up_after(world, world.post(body), frames, pieces) == "cancelled"
    assert len(world.gateway.listeners) == 0
