"""The access log: a line per request, and which of them nobody wants to read every second."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.gateway.world import SPEECH, Call, World


async def lines(world: World, method: str, path: str, body: Any = None) -> list[tuple[str, int]]:
    """Level and status of each access line of one request."""
    with capture_logs() as heard:
        await world.call(method, path, body).answer()
    return [(line["log_level"], line["status"]) for line in heard if line["event"] == "request"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200),
        ("/health/live", 200),
        ("/health/ready", 503),
        ("/psionic/csm/load", 200),
        ("/psionic/csm/worker/metadata", 200),
    ],
)
async def test_what_is_polled_is_quiet(world: World, path: str, status: int) -> None:
    """Probes and pollers leave their lines at debug level, whatever they are answered."""
    world.gateway.drain()

    assert await lines(world, "GET", path) == [("debug", status)]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", SPEECH, 422),
        ("GET", "/v1/models", 200),
        ("GET", SPEECH + "/nobody", 404),
        ("POST", "/health", 405),
        ("GET", "/healthy", 404),
    ],
)
async def test_everything_else_is_told(world: World, method: str, path: str, status: int) -> None:
    """Each other request has its line at info level."""
    assert await lines(world, method, path, {}) == [("info", status)]


async def line(world: World, call: Call) -> dict[str, Any]:
    """The one access line of a call that speaks."""
    with capture_logs() as heard:
        await call.answer()
        await call.task
    (found,) = (each for each in heard if each["event"] == "request")
    return dict(found)


async def test_a_spoken_request_is_told_whole(world: World) -> None:
    """Ids, outcome, times, bytes and who spoke; and not a word of the text."""
    body = {"input": "A secret text.", "request_id": "r1", "cancellation_id": "c1"}
    call = world.post({**body, "stream": True, "stream_format": "jsonl_base64"})
    claim = await world.worker.speak(2)

    told = await line(world, call)

    assert "secret" not in str(told)
    times = [
        told.pop(name)
        for name in ("latency_ms", "queue_wait_ms", "first_audio_latency_ms", "generation_ms")
    ]
    assert all(0 <= each < 60_000 for each in times)
    assert told.pop("bytes") > 2 * 3840
    assert told == {
        "event": "request",
        "log_level": "info",
        "method": "POST",
        "route": SPEECH,
        "status": 200,
        "request_id": "r1",
        "cancellation_id": "c1",
        "principal": "open",
        "job": claim.job_id,
        "frames": 2,
        "finish_reason": "stop",
        "attempt": 1,
        "worker_id": "w1",
        "stream_format": "jsonl_base64",
        "replayed": False,
    }


@pytest.mark.parametrize("header", ["x-psionic-request-id", "idempotency-key"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/health/ready"),
        ("GET", "/v1/models"),
        ("GET", "/psionic/csm/load"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("DELETE", "/health"),
        ("POST", "/psionic/csm/cancellations"),
    ],
)
async def test_every_answer_repeats_the_id_that_it_can_read(
    world: World, method: str, path: str, header: str
) -> None:
    """Whatever is answered: a header's id comes back once, and one that can't be an id does not."""
    body = {"cancellation_id": "c1"} if method == "POST" else None

    named = await world.call(method, path, body, headers={header: "id-1"}).answer()
    broken = await world.call(method, path, body, headers={header: "a b"}).answer()

    assert named.headers["x-psionic-request-id"] == named.headers["x-request-id"] == "id-1"
    assert "x-psionic-request-id" not in broken.headers


async def test_a_body_s_id_is_the_request_s_own(world: World) -> None:
    """Where it can't be read, an id of the headers is not taken for it."""
    headers = {"x-psionic-request-id": "id-1"}
    body = {"input": "Hello.", "request_id": "a b"}

    answer = await world.refused(body, headers=headers)

    assert (answer.code, answer.error["request_id"]) == ("invalid_request_id", None)
    assert "x-psionic-request-id" not in answer.headers


async def test_a_failure_is_told_with_what_is_known(world: World) -> None:
    """Its status was 200; the code says what became of it, and after how many frames."""
    call = world.post({"input": "Hello.", "stream": True})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    world.worker.end(claim, 1, reason="error", failure_code="csm_synthesis_failed")

    told = await line(world, call)

    assert (told["status"], told["code"]) == (200, "csm_synthesis_failed")
    assert (told["frames"], told["worker_id"]) == (1, "w1")


async def test_a_caller_who_left_is_told(world: World) -> None:
    """No status was sent, and the line says why and for whom."""
    call = world.post({"input": "Hello.", "request_id": "r1"})
    await world.worker.claim()
    with capture_logs() as heard:
        await call.hang_up()

    (told,) = (each for each in heard if each["event"] == "request")
    assert (told["code"], told["request_id"]) == ("client_gone", "r1")
    assert "status" not in told or told["status"] is None
    assert told["bytes"] == 0
