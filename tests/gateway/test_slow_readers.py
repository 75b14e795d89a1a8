"""Readers that take little or nothing: bounded memory, bounded time, everybody else is served."""

from __future__ import annotations

import json
import random
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.samples import HELD_BYTES
from scheduler.queue import Claim, LanePost
from shared.digests import sha256_hex, wav_pcm16_digest
from shared.messages import FrameRecord
from shared.wav import FRAME_BYTES
from tests.conftest import wait_until
from tests.gateway.processes import Process, process_in
from tests.gateway.world import SPEECH, codes, pcm

pytestmark = pytest.mark.redis

FRAMES = 250
SCRIPTED = [pcm(index) for index in range(FRAMES)]
NOISE = [random.Random(index).randbytes(FRAME_BYTES) for index in range(FRAMES)]
"""What no encoder makes small enough for the system's own buffers."""
COMPRESSED = 12
FLAC_BYTES = 8 << 20
"""What FFmpeg's encoder takes for one stream, however short its blocks are."""
MAX_STREAM_BYTES = 400 << 10
"""What one reader of a stream may cost: events that were read, and what waits to be written."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("slow")
    with process_in(folder, PSIONIC_CSM_SEND_STALL_MS="2000") as process:
        yield process


def post(process: Process, request_id: str, **more: object) -> socket.socket:
    """A client that has asked and reads nothing yet, with little room of its own."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    client.settimeout(20)
    client.connect((process.http.base_url.host, process.http.base_url.port))
    asked = {"input": "Hello.", "request_id": request_id, "max_audio_length_ms": 20_000, **more}
    body = json.dumps(asked).encode()
    client.sendall(
        f"POST {SPEECH} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return client


def spoken(process: Process, request_id: str, frames: Sequence[bytes] = SCRIPTED) -> None:
    """A long answer is there to be had."""
    process.worker.beat()
    client = post(process, request_id, stream=True, stream_format="audio", response_format="pcm")
    claim = process.claim()
    speak(process, claim, frames)
    digests = {
        "pcm16_sha256": sha256_hex(b"".join(frames)),
        "wav_pcm16_digest": wav_pcm16_digest(frames),
    }
    process.worker.end(claim, len(frames), **digests)
    assert frames[-1][-100:] in everything(client)[-200:]


def speak(process: Process, claim: Claim, frames: Sequence[bytes] = SCRIPTED) -> list[str]:
    """Many frames at a time, so that whoever is to read them waits for less than a stall."""
    posts = [
        LanePost(claim.job_id, claim.execution, FrameRecord(index, codes(index), samples))
        for index, samples in enumerate(frames)
    ]
    return [
        verdict
        for first in range(0, len(posts), 50)
        for verdict in process.worker.queue.post(posts[first : first + 50])
    ]


def everything(client: socket.socket) -> bytes:
    heard = bytearray()
    with client:
        while piece := client.recv(65536):
            heard += piece
    return bytes(heard)


def resident_bytes(process: Process) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096


def stalls(process: Process) -> int:
    return sum(line["event"] == "reader_stalled" for line in process.lines)


def turned_away(process: Process) -> int:
    """Of a crowd that comes at once, a busy machine's door refuses some."""
    return sum(line.get("code") == "too_many_waiting" for line in process.lines)


@pytest.mark.parametrize(
    ("transport", "readers", "most_bytes"),
    [
        ({"response_format": "wav"}, 150, HELD_BYTES + 150 * MAX_STREAM_BYTES // 2),
        ({"stream": True, "stream_format": "multipart_mixed"}, 60, 60 * MAX_STREAM_BYTES),
        (
            {"stream": True, "stream_format": "audio", "response_format": "pcm"},
            60,
            60 * MAX_STREAM_BYTES,
        ),
    ],
)
def test_readers_that_take_nothing_are_let_go(
    process: Process, transport: dict[str, object], readers: int, most_bytes: int
) -> None:
    """They cost a bounded piece of memory for a bounded time, and then their connections end."""
    request_id = "-".join(str(value) for value in transport.values())
    spoken(process, request_id)
    before, stalled, refused = resident_bytes(process), stalls(process), turned_away(process)
    clients = [post(process, request_id, **transport) for _ in range(readers)]

    wait_until(lambda: stalls(process) - stalled + turned_away(process) - refused == readers, 60)

    assert turned_away(process) - refused < readers / 2
    grown = resident_bytes(process) - before
    assert grown < most_bytes < readers * FRAMES * FRAME_BYTES
    assert process.http.get("/health/live").status_code == 200
    for client in clients:
        client.close()


def test_readers_of_a_compressed_stream_are_let_go(process: Process) -> None:
    """As the others, and each costs its encoder besides: that of flac is the largest."""
    spoken(process, "flac", NOISE)
    before, stalled = resident_bytes(process), stalls(process)
    transport = {"stream": True, "stream_format": "audio", "response_format": "flac"}
    with ExitStack() as clients:
        for _ in range(COMPRESSED):
            clients.enter_context(post(process, "flac", **transport))
        wait_until(lambda: stalls(process) - stalled == COMPRESSED, 60)

    grown = resident_bytes(process) - before
    assert grown < COMPRESSED * (MAX_STREAM_BYTES + FLAC_BYTES)
    assert process.http.get("/health/live").status_code == 200


def test_a_dead_reader_doesnt_hold_its_lane(process: Process) -> None:
    """The worker is never held up: it speaks to the end at its own pace, and the job ends."""
    process.worker.beat()
    client = post(process, "dead", stream=True, stream_format="audio", response_format="pcm")
    claim = process.claim()
    verdicts = speak(process, claim)
    process.worker.end(claim, FRAMES)

    assert set(verdicts) == {"ok"}
    assert process.http.get(f"{SPEECH}/dead").json()["state"] == "ended"
    client.close()


def test_a_slow_reader_gets_everything(process: Process) -> None:
    """Long after the end, as long as it goes on taking."""
    process.worker.beat()
    client = post(process, "slow", stream=True, stream_format="audio", response_format="pcm")
    claim = process.claim()
    speak(process, claim)
    process.worker.end(claim, FRAMES)
    heard = bytearray()
    with client:
        while piece := client.recv(4096):
            heard += piece

    assert pcm(FRAMES - 1) in heard[-FRAME_BYTES - 100 :]


def test_who_takes_nothing_holds_up_no_drain(tmp_path: Path) -> None:
    """When the grace is over such a client is let go: no error of ours, the exit status is 0."""
    with process_in(tmp_path, PSIONIC_CSM_DRAIN_GRACE_MS="100") as process:
        stream = post(process, "r1", stream=True, stream_format="jsonl_base64")
        first = process.claim()
        one_shot = post(process, "r2")
        second = process.claim()
        for claim in (first, second):
            speak(process, claim)
        process.worker.end(second, FRAMES)
        wait_until(lambda: all(client.recv(1, socket.MSG_PEEK) for client in (stream, one_shot)))
        process.signal(signal.SIGTERM)

        assert process.exit_status() == 0
        heard = {line["event"]: line for line in process.lines}
        assert heard["connections_cut"]["count"] == 2
        assert {line["level"] for line in process.lines} == {"info", "warning"}
        codes = {line["code"] for line in process.lines if line["event"] == "request"}
        assert codes == {"draining"}
        stream.close()
        one_shot.close()
