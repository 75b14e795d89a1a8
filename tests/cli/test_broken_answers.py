"""Servers that hang up, speak no HTTP or stop in the midst of an answer, and what commands say."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli import main
from cli.client import GatewayClient
from cli.exits import NOT_GENUINE, REFUSED, UNREACHABLE, CommandFailed

WAIT_S = 30.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n"
SIZED = HEAD + b"content-length: 100\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
START = b'{"event": "start"}\n'
DEEP = b"[" * 100_000
SPEAK = ["speak", "Hello.", "--artifact-id", "a"]
COMMANDS = {
    "speak": SPEAK,
    "speak --stream": [*SPEAK, "--stream"],
    "status": ["status"],
    "voices": ["voices"],
    "cancel": ["cancel", "--request-id", "a"],
}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reset(client: socket.socket) -> None:
    """End it as when a host forgets the connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def take_request(client: socket.socket) -> bool:
    """Whether a whole one came: to close over what was not taken would be a reset."""
    size = 0
    with client.makefile("rb") as lines:
        for line in lines:
            if line == b"\r\n":
                return len(lines.read(size)) == size
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
    return False


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of one that gives every request this answer, and closes its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    if take_request(client):
                        answer(client)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join(WAIT_S)


@pytest.mark.parametrize(
    ("data", "exit_code", "words"),
    [
        pytest.param(b"", UNREACHABLE, "hung up", id="nothing"),
        pytest.param(HEAD[:30], UNREACHABLE, "hung up", id="half a head"),
        pytest.param(b"SSH-2.0-x\r\n" + bytes(99), UNREACHABLE, "no HTTP", id="no HTTP"),
        pytest.param(SIZED, NOT_GENUINE, "broke off", id="a head alone"),
        pytest.param(SIZED + START, NOT_GENUINE, "broke off", id="half a body"),
        pytest.param(CHUNKED + chunk(b"RIFF"), NOT_GENUINE, "broke off", id="no last chunk"),
        pytest.param(CHUNKED + b"zz\r\n", NOT_GENUINE, "broke off", id="no chunk"),
        pytest.param(
            HEAD + b"content-encoding: gzip\r\n\r\nabc", REFUSED, "not a Psionic", id="not packed"
        ),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_half_an_answer_is_none(
    command: str,
    data: bytes,
    exit_code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says what happened, without what the server sent, and no file is left behind."""
    file = tmp_path / "speech.wav"
    output = ["--output", str(file)] if command.startswith("speak") else []

    with server(lambda client: client.sendall(data)) as url:
        code = main.run([*COMMANDS[command], *output, "--url", url])

    told = capsys.readouterr()
    errors = [line for line in told.err.splitlines() if line.startswith("error: ")]
    assert code == exit_code
    assert len(errors) == 1
    assert words in errors[0]
    assert not any(said in told.out + told.err for said in ("SSH", "RIFF", "zz", "Traceback"))
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_reset_broke_off() -> None:
    """What was heard of it counts for nothing."""
    heard = threading.Event()

    def answer(client: socket.socket) -> None:
        client.sendall(CHUNKED + chunk(START))
        heard.wait(WAIT_S)
        reset(client)

    with server(answer) as url, GatewayClient(url) as client:
        events = client.stream({"input": "Hello."})
        assert next(events) == {"event": "start"}
        heard.set()
        with pytest.raises(CommandFailed, match="broke off") as caught:
            next(events)
    assert caught.value.exit_code == NOT_GENUINE


def test_a_gateway_that_resets_every_connection_is_unreachable() -> None:
    """Nobody knows whether there is one."""
    with server(reset) as url, GatewayClient(url) as client:
        with pytest.raises(CommandFailed, match="can't reach") as caught:
            client.load()
        assert not client.is_ready()
    assert caught.value.exit_code == UNREACHABLE


def test_a_document_without_a_bottom_is_no_gateways() -> None:
    """However deep it goes, whatever it is given for."""
    data = HEAD + b"content-length: %d\r\n\r\n" % len(DEEP) + DEEP
    with server(lambda client: client.sendall(data)) as url, GatewayClient(url) as client:
        for ask in (client.health, lambda: list(client.stream({"input": "Hello."}))):
            with pytest.raises(CommandFailed) as caught:
                ask()
            assert caught.value.exit_code in (REFUSED, NOT_GENUINE)


def test_a_failure_is_told_in_its_own_line() -> None:
    """What a server puts into a code or a message neither ends the line nor moves a cursor."""
    error = {"code": "a\nerror: b", "message": "\x1b[2Jc\r\nd" + "e" * 5000, "request_id": "\x07"}
    data = json.dumps({"error": error}).encode()
    head = b"HTTP/1.1 503 x\r\ncontent-length: %d\r\n\r\n" % len(data)
    with (
        server(lambda client: client.sendall(head + data)) as url,
        GatewayClient(url) as client,
        pytest.raises(CommandFailed) as caught,
    ):
        client.health()

    lines = caught.value.lines
    assert lines[0].startswith("error: a error: b:  [2Jc  deee")
    assert all(line.isprintable() and len(line) < 1200 for line in lines)
