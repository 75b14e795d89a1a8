"""Redis hangs, dies and comes back while people wait: each hears the truth in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from shared.wav import wav_file
from tests.conftest import quickest, wait_until
from tests.gateway.processes import Process
from tests.gateway.world import pcm

pytestmark = pytest.mark.redis
HELLO = {"input": "Hello."}
HANG_S = 20.0
"""Redis hangs until everybody has heard: whoever waited for it would wait at least so long."""
EACH_WRITE = ("appendfsync", "always")
"""With ``everysec`` a kill loses what a busy disk has kept waiting, a second or two of it, which is
more than the service promises to get over."""


@contextmanager
def _told_to_end_while_redis_hangs(process: Process) -> Iterator[None]:
    """A gateway that was asked to end and, a moment later, to end at once."""
    os.kill(process.server.pid, signal.SIGSTOP)
    try:
        process.signal(signal.SIGTERM)
        time.sleep(0.3)
        process.signal(signal.SIGTERM)
        yield
    finally:
        os.kill(process.server.pid, signal.SIGCONT)


def timed(process: Process, body: dict[str, Any]) -> tuple[float, httpx.Response]:
    asked_at = time.monotonic()
    reply = process.post(body)
    return time.monotonic() - asked_at, reply


def test_who_waits_for_a_redis_that_hangs_hears_by_the_deadline(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """Each caller's own deadline holds, whether its job was claimed or not, also in a stream."""
    claimed = threads.submit(timed, process, {**HELLO, "timeout_ms": 2500, "request_id": "r1"})
    claim = process.claim()
    process.worker.post(claim, 0)
    lines = {"stream": True, "stream_format": "jsonl_base64"}
    queued = [
        threads.submit(timed, process, {**HELLO, **more, "timeout_ms": 2500})
        for more in ({}, lines)
    ]
    for _ in queued:
        process.claim_hint()
    os.kill(process.server.pid, signal.SIGSTOP)
    try:
        waited = [each.result(HANG_S) for each in (claimed, *queued)]
        health_s, health = quickest(lambda: process.http.get("/health").json())
    finally:
        os.kill(process.server.pid, signal.SIGCONT)

    assert all(2.4 < seconds < HANG_S / 2 for seconds, _ in waited)
    codes = [reply.json()["error"]["code"] for _, reply in waited]
    assert codes == ["generation_timeout", "queue_timeout", "queue_timeout"]
    assert {reply.status_code for _, reply in waited} == {504}
    assert health["runtime"]["refusal"]["code"] == "queue_unavailable"
    assert health_s < 1


def test_who_waits_while_redis_restarts_is_served(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """Gone for seconds in mid-answer and back with its file: every caller gets the whole answer."""
    with process.server.client() as client:
        client.config_set(*EACH_WRITE)
    callers = [
        threads.submit(process.post, {**HELLO, "request_id": f"r{number}", "timeout_ms": 30_000})
        for number in range(3)
    ]
    claims = [process.claim() for _ in callers]
    process.worker.post(claims[0], 0)
    process.server.stop(kill=True)
    time.sleep(3)
    process.server.start(f"--{EACH_WRITE[0]}", EACH_WRITE[1])
    wait_until(process.redis_answers)
    process.worker.queue.renew([(claim.job_id, claim.execution) for claim in claims])
    for claim in claims:
        process.worker.post(claim, *range(int(claim is claims[0]), 2))
        process.worker.end(claim, 2)

    answers = [each.result(60) for each in callers]

    assert {(answer.status_code, answer.content) for answer in answers} == {
        (200, wav_file(pcm(0) + pcm(1)))
    }
    wait_until(lambda: any(line["event"] == "event_reader_recovered" for line in process.lines))


def test_a_gateway_that_stood_still_hands_over_what_is_there(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """Stopped past its calls' limits and a caller's deadline, it finds the answers as it wakes."""
    late = threads.submit(process.post, {**HELLO, "request_id": "r1", "timeout_ms": 2000})
    first = process.claim()
    patient = threads.submit(process.post, {**HELLO, "request_id": "r2", "timeout_ms": 30_000})
    second = process.claim()
    process.signal(signal.SIGSTOP)
    for claim in (first, second):
        process.worker.post(claim, 0, 1)
        process.worker.end(claim, 2)
    time.sleep(3)
    process.signal(signal.SIGCONT)

    for caller in (late, patient):
        answer = caller.result(HANG_S)
        assert (answer.status_code, answer.content) == (200, wav_file(pcm(0) + pcm(1)))


def test_a_gateway_stops_though_redis_hangs(process: Process, threads: ThreadPoolExecutor) -> None:
    """Told twice, it says so to whoever is inside and ends, without waiting for Redis."""
    inside = threads.submit(process.post, {**HELLO, "timeout_ms": 30_000})
    process.claim()
    with _told_to_end_while_redis_hangs(process):
        told = inside.result(HANG_S)
        status = process.exit_status(HANG_S)

    assert (told.status_code, told.json()["error"]["code"]) == (503, "draining")
    assert status == 0


def test_a_gateway_that_ends_waits_for_no_redis(
    process: Process, threads: ThreadPoolExecutor
) -> None:
    """However many have left meanwhile: what it would have said to Redis lapses."""
    inside = [threads.submit(process.post, {**HELLO, "timeout_ms": 30_000}) for _ in range(6)]
    for _ in inside:
        process.claim_hint()
    with _told_to_end_while_redis_hangs(process):
        told = {each.result(HANG_S).json()["error"]["code"] for each in inside}
        status = process.exit_status(HANG_S)

    assert told == {"draining"}
    assert status == 0
    wait_until(lambda: process.lines[-1]["event"] == "gateway_stopped")
    assert "goodbye_cut_short" in {line["event"] for line in process.lines}
