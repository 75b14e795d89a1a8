"""A request's way as spans and log lines that name its trace, on the gateway's side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
from structlog.testing import capture_logs

from shared.settings import GatewaySettings
from shared.tracing import TraceContext
from tests.gateway.world import SPEECH, World, running
from tests.spans import Kept, fact, id_of, parent_of, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
HELLO = {"input": "A secret text.", "request_id": "r1"}
JSONL = {"stream": True, "stream_format": "jsonl_base64"}


@pytest.fixture
def kept() -> Kept:
    return Kept("gateway")


@pytest.fixture
async def traced(
    settings: GatewaySettings,
    tmp_path: Path,
    fake_server: fakeredis.FakeServer,
    fake_redis: redis.Redis,
    kept: Kept,
) -> AsyncIterator[World]:
    clients = [fakeredis.FakeAsyncRedis(server=fake_server) for _ in range(2)]
    async with running(settings, tmp_path, fake_redis, *clients, spans=kept.spans) as world:
        yield world


async def line(world: World, body: Any, headers: dict[str, str]) -> dict[str, Any]:
    with capture_logs() as heard:
        await world.refused(body, headers=headers)
    return dict(next(each for each in heard if each["event"] == "request"))


async def test_a_caller_s_trace_is_logged_and_handed_on(world: World) -> None:
    """Without the extra, the worker gets the caller's own context, and the line names the trace."""
    with capture_logs() as heard:
        call = world.post(HELLO, headers=PARENT)
        claim = await world.worker.speak(1)
        await call.answer()
        await call.task

    assert claim.job.traceparent == PARENT["traceparent"]
    assert next(each for each in heard if each["event"] == "request")["trace_id"] == TRACE


@pytest.mark.parametrize("given", ["", "00-1-2-3", f"00-{TRACE}-{SPAN}-01\x00"])
async def test_what_is_no_trace_is_ignored(world: World, given: str) -> None:
    """A bad header neither fails the request nor shows up anywhere."""
    assert "trace_id" not in await line(world, {"input": ""}, {"traceparent": given})


async def test_a_trace_shapes_nothing(world: World) -> None:
    """The same request under another trace is the same request: it is replayed."""
    call = world.post(HELLO, headers=PARENT)
    await world.worker.speak(1)
    await call.answer()

    other = {"traceparent": f"00-{TRACE[::-1]}-{SPAN}-01"}
    again = await world.post(HELLO, headers=other).answer()

    assert again.headers["x-psionic-csm-replayed"] == "true"


async def test_a_request_s_time_is_told_in_spans(traced: World, kept: Kept) -> None:
    """Admission, queue and delivery lie within the request's span, which is the caller's child and
    the worker's parent."""
    call = traced.post({**HELLO, **JSONL}, headers=PARENT)
    claim = await traced.worker.speak(2)
    await call.answer()
    await call.task

    request = kept.named(f"POST {SPEECH}")
    parts = [kept.named(name) for name in ("admission", "queue", "delivery")]
    assert sorted(kept.names()) == ["POST /psionic/csm/speech", "admission", "delivery", "queue"]
    assert {trace_of(span) for span in kept.all()} == {TRACE}
    assert parent_of(request) == SPAN
    assert {parent_of(span) for span in parts} == {id_of(request)}
    assert TraceContext.parse(claim.job.traceparent) == TraceContext(TRACE, id_of(request), "01")
    instants = [time for span in parts for time in (span.start_time, span.end_time)]
    assert all(instants)
    assert (fact(request, "request_id"), fact(request, "job")) == ("r1", claim.job_id)
    assert (fact(request, "status"), fact(request, "finish_reason")) == (200, "stop")
    assert fact(parts[2], "frames") == 2
    assert request.status.is_unset
    assert not any("secret" in span.to_json() for span in kept.all())


async def test_a_failure_is_told_in_its_span(traced: World, kept: Kept) -> None:
    """A refusal has its code; there was no queue and nothing was delivered."""
    await traced.refused({"input": ""})

    request = kept.named(f"POST {SPEECH}")
    assert kept.names() == [request.name]
    assert (request.status.is_ok, request.status.description) == (False, "empty_input")
    assert parent_of(request) is None


async def test_a_replay_has_no_queue(traced: World, kept: Kept) -> None:
    """What is answered from the record waited for nobody."""
    call = traced.post(HELLO)
    await traced.worker.speak(1)
    await call.answer()
    await call.task
    first = len(kept.all())
    again = traced.post(HELLO)
    await again.answer()
    await again.task

    assert sorted(kept.names()[first:]) == ["POST /psionic/csm/speech", "admission"]


async def test_looking_is_not_traced(traced: World, kept: Kept) -> None:
    """Probes, scrapes and documents make no spans."""
    for path in ("/health", "/metrics", "/v1/models", "/psionic/csm/load"):
        await traced.get(path, headers=PARENT)

    assert kept.names() == []
