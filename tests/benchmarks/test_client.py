"""The callers of a load: kept connections, whole answers, and breaks that are said to be breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from benchmarks.client import BROKEN, Caller

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
WAIT_S = 20.0


class Server:
    """Answers each request with the next of the answers that the test gave it."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                await self.answers.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller is gone
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        server.url = f"http://127.0.0.1:{port}"
        yield server


async def whole(writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\nX-Name: Value\r\ncontent-length: 8\r\n\r\n{"a": 1}')
    await writer.drain()


async def refusal(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 429 Too Many\r\nx-psionic-csm-failure-code: queue_full\r\n"
        b"content-length: 2\r\n\r\n{}"
    )
    await writer.drain()


async def lines(writer: asyncio.StreamWriter) -> None:
    """Three lines, the second cut in two, some time apart."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in (b"one\n", b"tw", b"o\n", b"three\n"):
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0.05)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def cut_short(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()


async def test_a_connection_serves_one_call_after_another(server: Server) -> None:
    """Answers come whole, with their headers in lower case; nothing is connected anew."""
    server.answers = [whole, refusal, whole]
    async with Caller(server.url, "secret") as caller:
        first = await caller.post("/speech", {"input": "Hi"})
        second = await caller.post("/speech", {})
        third = await caller.get("/load")

    assert (first.status, first.json(), first.headers["x-name"]) == (200, {"a": 1}, "Value")
    assert (second.status, second.code) == (429, "queue_full")
    assert (third.status, third.code) == (200, None)
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /speech HTTP/1.1\r\n")
    assert server.requests[0].endswith(b'\r\n\r\n{"input": "Hi"}')
    assert b"authorization: Bearer secret\r\n" in server.requests[2]


async def test_each_line_has_its_moment(server: Server) -> None:
    """A line counts when it is whole, however it was cut on its way."""
    server.answers = [lines]
    async with Caller(server.url) as caller:
        reply = await caller.get("/stream")

    assert bytes(reply.body) == b"one\ntwo\nthree\n"
    assert len(reply.lines_at) == 3
    assert reply.lines_at == sorted(reply.lines_at)
    assert reply.lines_at[1] - reply.lines_at[0] > 0.04


async def test_an_answer_that_breaks_off_is_broken(server: Server) -> None:
    """Half an answer is none, and the next call has a connection of its own."""
    server.answers = [cut_short, whole]
    async with Caller(server.url) as caller:
        broken = await caller.get("/one")
        after = await caller.get("/two")

    assert broken.status == BROKEN
    assert after.status == 200
    assert server.connections == 2


async def test_a_caller_that_gives_up_leaves_its_connection(server: Server) -> None:
    """What comes too late for one call is never taken for the answer of the next."""
    late = asyncio.Event()

    async def stalls(writer: asyncio.StreamWriter) -> None:
        await late.wait()
        await refusal(writer)

    server.answers = [stalls, whole]
    async with Caller(server.url) as caller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await caller.get("/slow")
        late.set()
        reply = await asyncio.wait_for(caller.get("/next"), WAIT_S)

    assert reply.status == 200


async def test_only_plain_http_is_spoken() -> None:
    """A load over TLS would measure TLS: it is refused, not sent in the clear."""
    with pytest.raises(ValueError, match="plain"):
        Caller("https://127.0.0.1:1")
