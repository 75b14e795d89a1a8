"""Clients that leave at every point of an answer: nothing of them stays, and no lane works on."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from tests.conftest import wait_until
from tests.gateway.processes import Process, process_in
from tests.gateway.world import SPEECH

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all of them: whatever a client did, the next is served."""
    folder = tmp_path_factory.mktemp("departures")
    with process_in(folder, PSIONIC_CSM_RESULT_TTL_MS="1000") as process:
        yield process


@pytest.fixture(autouse=True)
def worker_is_there(process: Process) -> None:
    process.worker.beat()


def connect(process: Process) -> socket.socket:
    url = process.http.base_url
    client = socket.create_connection((url.host, url.port), timeout=10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def request(stream_format: str | None, request_id: str | None = None) -> bytes:
    id_ = request_id or uuid4().hex
    asked = {"input": "Hello.", "request_id": id_, "stream": stream_format is not None}
    if stream_format is not None:
        asked["stream_format"] = stream_format
    body = json.dumps(asked).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    """Close as a process that is killed with unread data does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


LEAVE: dict[str, Callable[[socket.socket], None]] = {
    "close": close,
    "reset": reset,
    "half_close": half_close,
}


def is_clean(process: Process) -> bool:
    """No caller listens, nothing waits, nothing of the request counts as open."""
    load = process.http.get("/psionic/csm/load").json()
    return not process.keys("listeners:*") and load["queue_depth"] == 0


@pytest.mark.parametrize("sent", [0, 1, 60, -20, -1])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_who_leaves_before_the_request_is_whole_was_never_there(
    process: Process, sent: int, way: str
) -> None:
    """No part of a request reaches the queue."""
    before = process.admitted()
    client = connect(process)
    client.sendall(request(None)[:sent])
    LEAVE[way](client)

    wait_until(lambda: is_clean(process))
    assert process.admitted() == before
    assert process.http.get("/health").status_code == 200


@pytest.mark.parametrize("way", LEAVE)
@pytest.mark.parametrize("stream_format", [None, "multipart_mixed", "audio"])
def test_who_leaves_the_queue_is_not_spoken_to(
    process: Process, stream_format: str | None, way: str
) -> None:
    """The place in line is free at once."""
    with closing(connect(process)) as client:
        client.sendall(request(stream_format))
        process.claim_hint()
        LEAVE[way](client)

        wait_until(lambda: is_clean(process))


@pytest.mark.parametrize("way", LEAVE)
@pytest.mark.parametrize("stream_format", [None, "multipart_mixed", "audio"])
@pytest.mark.parametrize("frames", [0, 1, 3])
def test_who_leaves_in_the_middle_frees_the_lane(
    process: Process, stream_format: str | None, frames: int, way: str
) -> None:
    """Claimed and silent, after the first frame, in mid-stream: the worker is told to stop."""
    with closing(connect(process)) as client:
        client.sendall(request(stream_format))
        claim = process.claim()
        process.worker.post(claim, *range(frames))
        if stream_format is not None and frames:
            client.recv(1000)
        LEAVE[way](client)

        wait_until(lambda: process.worker.verdict(claim) == "cancelled")
        process.worker.end(claim, frames, "cancelled")
        wait_until(lambda: is_clean(process))


def test_who_leaves_with_the_answer_on_its_way_leaves_nothing(process: Process) -> None:
    """Gone between the last frame and the end's arrival: the outcome is kept, the caller isn't."""
    client = connect(process)
    client.sendall(request("audio", "r1"))
    claim = process.claim()
    process.worker.post(claim, 0, 1)
    client.recv(1000)
    process.worker.end(claim, 2)
    reset(client)

    wait_until(lambda: is_clean(process))
    assert process.http.get(f"{SPEECH}/r1").json()["state"] == "ended"
