"""Real answers and events against the schemas that the OpenAPI document gives them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.formats import CONTENT_TYPES
from gateway.openapi import document
from gateway.operations import EVENTS
from tests.gateway.world import SPEECH, Answer, World, gateway_settings

DOCUMENT = document(gateway_settings(), tuple(CONTENT_TYPES))
HELLO = {"input": "Hello.", "request_id": "r1", "cancellation_id": "c1"}
CONTENT = DOCUMENT["paths"][SPEECH]["post"]["responses"]["200"]["content"]


def fits(value: Any, schema: dict[str, Any]) -> None:
    """Raises where a value is not what the document says."""
    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def answer_fits(answer: Answer, method: str, path: str) -> None:
    response = DOCUMENT["paths"][path][method]["responses"][str(answer.status)]
    fits(answer.json(), response["content"]["application/json"]["schema"])


LOOKS = ("/health", "/psionic/csm/worker/metadata", "/psionic/csm/load", "/v1/models")
REFUSAL = {"code": "csm_model_unavailable", "reason": "no weights", "pending_phases": ["fetch"]}


@pytest.mark.parametrize("path", [*LOOKS, "/health/live", "/health/ready"])
@pytest.mark.parametrize(
    "beat",
    [
        {},
        {"state": "loading", "lanes": 0},
        {"state": "unavailable", "lanes": 0, "refusal": REFUSAL},
        {"state": "unavailable", "lanes": 0, "artifact_id": "", "refusal": None},
        None,
    ],
    ids=["ready", "loading", "refusing", "knowing-nothing", "none"],
)
async def test_documents_fit_in_every_state(
    world: World, path: str, beat: dict[str, Any] | None
) -> None:
    """Ready, loading, refusing, or nobody there: the documents keep their shape."""
    world.worker.queue.farewell()
    if beat is not None:
        world.worker.beat(**beat)

    answer_fits(await world.get(path), "get", path)


async def test_results_fit_in_every_state(world: World) -> None:
    """A result is read while its job waits, runs, has spoken, and has failed."""
    path = SPEECH + "/{request_id}"
    call = world.post(HELLO)
    states = []
    hint = await world.worker.hints.get()
    for step in ("waiting", "running", "ended"):
        if step == "running":
            world.worker.hints.put_nowait(hint)
            claim = await world.worker.claim()
        elif step == "ended":
            world.worker.post(claim, 0)
            world.worker.end(claim, 1)
            await call.answer()
        answer = await world.get(SPEECH + "/r1")
        answer_fits(answer, "get", path)
        states.append(answer.json()["state"])
    failed = world.post({**HELLO, "request_id": "r2"})
    world.worker.end(
        await world.worker.claim(), 0, reason="error", failure_code="no_audio_generated"
    )
    await failed.answer()

    answer_fits(await world.get(SPEECH + "/r2"), "get", path)
    answer_fits(await world.get(SPEECH + "/r3"), "get", path)
    assert states == ["waiting", "running", "ended"]


async def test_cancellations_fit(world: World) -> None:
    """With hits of each kind, and with none."""
    path = "/psionic/csm/cancellations"
    world.post(HELLO)
    await world.worker.hints.get()
    for id_ in ("c1", "c1", "nobody"):
        answer = await world.refused({"cancellation_id": id_}, path=path)
        assert answer.status == 202
        answer_fits(answer, "post", path)


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def parts(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(rb"\r\n\r\n(\{.*?\})\r\n", body)]


def server_sent(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]


STREAMS = {
    "multipart_mixed": ("multipart/mixed", parts, "event"),
    "jsonl_base64": ("application/x-ndjson", lines, "event"),
    "sse": ("text/event-stream", server_sent, "type"),
}


@pytest.mark.parametrize("stream_format", STREAMS)
@pytest.mark.parametrize("fails", [False, True])
async def test_events_fit(world: World, stream_format: str, fails: bool) -> None:
    """Each event of a stream is one of those that the document lists for its content type: from
    the start, by way of a fallback, to the terminal or the error."""
    media_type, read, kind = STREAMS[stream_format]
    body = {**HELLO, "stream": True, "stream_format": stream_format, "voice_turn_budget_ms": 1}
    call = world.post(body)
    claim = await world.worker.claim()
    status, headers = await call.start()
    world.worker.post(claim, 0)
    how = {"reason": "error", "failure_code": "csm_synthesis_failed"} if fails else {}
    world.worker.end(claim, 1, **how)
    data = b""
    while not call.finished:
        data += await call.part()
    events = read(data)

    assert status == 200
    assert headers["content-type"].partition(";")[0] == media_type
    schema = {"oneOf": CONTENT[media_type][EVENTS]}
    for event in events:
        fits(event, schema)
    kinds = [event[kind] for event in events]
    assert "fallback" in kinds
    assert kinds[-1] in (("error",) if fails else ("terminal", "speech.audio.done"))
