"""Connections: heads are bounded in size, fields and time, and what is no HTTP hears so in JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway import protocol
from gateway.protocol import MAX_EARLY_BYTES, MAX_FIELDS, MAX_HEAD_BYTES, BoundedHttp
from tests.conftest import WAIT_S, until

STALL_S = 1.0
"""How long a client may take nothing: far longer than this process is kept from running."""
KEEP_ALIVE_S = 600
GET = b"GET /x HTTP/1.1\r\nhost: h\r\n"


class Held:
    """What a request to ``/held`` waits for, and whether its client left meanwhile."""

    def __init__(self) -> None:
        self.came, self.go_on, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.written = 0
        self.server: list[BoundedHttp] = []


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of header fields, having read the body; ``/echo`` with that."""
    if scope["path"] == "/refuse":
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})
        return
    sent = b""
    more = True
    while more:
        message = await receive()
        sent += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/held":
        held: Held = scope["state"]["held"]
        held.came.set()
        leaving = asyncio.ensure_future(receive())
        going = asyncio.ensure_future(held.go_on.wait())
        await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            held.gone.set()
        leaving.cancel()
        going.cancel()
    if scope["path"] == "/whole":
        await whole_before_its_end(scope["state"]["held"], send)
        return
    if scope["path"] == "/unended":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        return
    if scope["path"] == "/much":
        await much(scope["state"]["held"], receive, send)
        return
    body = sent if scope["path"] == "/echo" else str(len(scope["headers"])).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def whole_before_its_end(held: Held, send: Send) -> None:
    """Sends all that it has promised, and says only later that this was all."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok", "more_body": True})
    await held.go_on.wait()
    await send({"type": "http.response.body", "body": b""})


async def much(held: Held, receive: Receive, send: Send) -> None:
    """Writes without end, in pieces, until the client is gone."""
    leaving = asyncio.ensure_future(receive())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not leaving.done():
        await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        held.written += 65536
        held.came.set()
        await asyncio.sleep(0)
    held.gone.set()


class Connection:
    """A client's end of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: Held
    ) -> None:
        self.held = held
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_for_ever(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                await self.send(bytes(1000))
                await asyncio.sleep(0.01)

    async def answer(self) -> tuple[bytes, bytes]:
        """The next head, and its body."""
        async with asyncio.timeout(WAIT_S):
            head = await self.head()
            lengths = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            return head, await self._reader.readexactly(int(lengths[0].split(b":")[1]))

    async def head(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._reader.readuntil(b"\r\n\r\n")

    async def take(self, size: int) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._reader.readexactly(size)

    def reset(self) -> None:
        """As when a host forgets the connection."""
        linger = struct.pack("ii", 1, 0)
        peer = self._writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    def finish(self) -> None:
        """Send nothing more, and go on listening."""
        self._writer.write_eof()

    async def refusal(self) -> dict[str, Any]:
        """The error of an answer after which the connection is closed."""
        head, body = await self.answer()
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nx-psionic-csm-failure-code: malformed_json\r\n" in head
        assert await self.is_closed()
        return dict(json.loads(body)["error"])

    async def is_closed(self) -> bool:
        """Waits for the other end to say so."""
        async with asyncio.timeout(WAIT_S):
            return await self._reader.read() == b""

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    config = uvicorn.Config(
        app, http=BoundedHttp, ws="none", log_config=None, timeout_keep_alive=KEEP_ALIVE_S
    )
    state = ServerState()
    config.load()
    held = Held()

    def serve() -> BoundedHttp:
        one = BoundedHttp(
            config=config, server_state=state, app_state={"held": held}, send_stall_s=STALL_S
        )
        held.server.append(one)
        return one

    server = await asyncio.get_running_loop().create_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port), held)
    yield connection
    await connection.close()
    server.close()
    await asyncio.gather(*state.tasks)
    await until(lambda: not state.connections)


async def test_requests_pass_one_after_another(connection: Connection) -> None:
    """A connection is kept, and each request's head is bounded on its own."""
    pieces = [b"a%d: %b\r\n" % (index, b"v" * 900) for index in range(50)]
    for _ in range(3):
        await connection.send(GET)
        for piece in pieces:
            await connection.send(piece)
        await connection.send(b"\r\n")
        assert (await connection.answer())[1] == b"51"


async def test_a_body_is_no_part_of_the_head(connection: Connection) -> None:
    """What the head bounds does not bound bodies, which have a bound of their own."""
    size = 3 * MAX_HEAD_BYTES
    await connection.send(b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % size)
    await connection.send(bytes(size))

    assert (await connection.answer())[0].startswith(b"HTTP/1.1 200 ")


async def test_a_head_without_end_is_cut_off(connection: Connection) -> None:
    """One field that goes on and on is refused long before it fills the memory."""
    await connection.send(GET + b"a: ")
    await connection.send(b"v" * MAX_HEAD_BYTES)

    assert (await connection.refusal())["message"] == "the request's head is too large"


async def test_too_many_fields_are_refused(connection: Connection) -> None:
    """A head of small fields is bounded by their number."""
    fields = b"".join(b"a%d: v\r\n" % index for index in range(MAX_FIELDS))
    await connection.send(GET + fields + b"\r\n")

    assert (await connection.refusal())["type"] == "invalid_request_error"


async def test_what_is_no_http_is_refused_in_the_envelope(connection: Connection) -> None:
    """Even a caller that speaks another protocol gets a code."""
    await connection.send(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")

    assert (await connection.refusal())["retryable"] is False


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time for a head."""
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)


@pytest.mark.usefixtures("hasty")
async def test_whoever_connects_and_does_not_ask_is_let_go(connection: Connection) -> None:
    """A connection without a request costs something only for a while."""
    assert await connection.is_closed()


async def test_a_further_request_that_never_ends_is_let_go(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts anew for each request of a connection that is kept."""
    await connection.send(GET + b"\r\n")
    await connection.answer()
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.02)
    await connection.send(GET + b"a: ")

    assert await connection.is_closed()


async def test_bytes_that_are_no_head_keep_no_connection(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was answered and sends on, but no request, is let go like one who is silent."""
    await connection.send(GET + b"\r\n")
    await connection.answer()
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.02)
    await connection.send(b"\r\n")

    assert await connection.is_closed()


HELD = b"GET /held HTTP/1.1\r\nhost: h\r\n\r\n"


async def test_a_request_before_its_turn_is_not_taken(connection: Connection) -> None:
    """The one that is being answered is answered as it was asked, and then the connection ends."""
    await connection.send(HELD + b"POST /x HTTP/1.1\r\na: b\r\ncontent-length: 3\r\n\r\nabc")
    await connection.held.came.wait()
    await connection.send(GET + b"\r\n")
    connection.held.go_on.set()

    assert (await connection.answer())[1] == b"1"
    assert await connection.is_closed()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "amid the answer"])
@pytest.mark.parametrize("rest", [b"\0\0", b"x", b"GET /x HTT\0"])
async def test_what_is_no_request_takes_no_answers_place(
    connection: Connection, rest: bytes, late: bool
) -> None:
    """Rubbish behind a request has no answer: the request's own comes whole, and is the last."""
    await connection.send(HELD if late else HELD + rest)
    await connection.held.came.wait()
    if late:
        await connection.send(rest)
    (server,) = connection.held.server
    await until(lambda: server.is_deaf)
    connection.held.go_on.set()

    head, body = await connection.answer()
    assert (head[:13], body) == (b"HTTP/1.1 200 ", b"1")
    assert await connection.is_closed()


async def test_an_answer_without_an_end_is_broken_off(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client misses the end, and whoever reads the log is told of no defect."""
    await connection.send(b"GET /unended HTTP/1.1\r\nhost: h\r\n\r\n")

    await connection.head()
    assert await connection.take(9) == b"4\r\nsome\r\n"
    assert await connection.is_closed()
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("asked", [b"", GET, GET + b"\r\n", HELD])
async def test_of_a_connection_that_was_reset_nothing_stays(
    connection: Connection, asked: bytes
) -> None:
    """No timer keeps it: thousands a second would fill the memory, though all of them are gone."""
    await connection.send(asked)
    if asked.startswith(GET + b"\r\n"):
        await connection.answer()
    await until(lambda: bool(connection.held.server))
    kept = weakref.ref(connection.held.server.pop())
    connection.reset()

    await until(lambda: gc.collect() >= 0 and kept() is None)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_who_has_the_whole_answer_may_ask_again(
    connection: Connection, method: bytes
) -> None:
    """Its last byte is the answer's end for a client, and for a HEAD the head is, though whoever
    answers says so later: the next request has not come before its turn."""
    await connection.send(method + b" /whole HTTP/1.1\r\nhost: h\r\n\r\n")
    head = await connection.head()
    if method == b"GET":
        assert await connection.take(2) == b"ok"
    await connection.send(b"POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhel")
    (server,) = connection.held.server
    await until(lambda: server._early.endswith(b"hel"))
    await connection.send(b"lo")
    await until(lambda: server._early.endswith(b"hello"))

    connection.held.go_on.set()

    assert b"connection: close" not in head
    assert (await connection.answer())[1] == b"hello"
    await connection.send(GET + b"\r\n")
    assert (await connection.answer())[1] == b"1"


async def test_not_without_bound(connection: Connection) -> None:
    """What comes in that moment is a request at most; the connection ends where it is more."""
    await connection.send(b"GET /whole HTTP/1.1\r\nhost: h\r\n\r\n")
    await connection.answer()
    (server,) = connection.held.server
    await connection.send(bytes(MAX_EARLY_BYTES + 1))
    await until(lambda: server.is_deaf)

    connection.held.go_on.set()

    assert await connection.is_closed()


async def test_a_client_that_asked_before_its_turn_is_seen_leaving(connection: Connection) -> None:
    """What it sent too early doesn't keep its departure from being noticed."""
    await connection.send(HELD + GET + b"\r\n")
    await connection.held.came.wait()
    await connection.close()

    async with asyncio.timeout(WAIT_S):
        await connection.held.gone.wait()


OFFER = b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"


@pytest.mark.parametrize("cut", [0, 20, 60, 150])
async def test_an_offer_to_switch_protocols_is_left_aside(connection: Connection, cut: int) -> None:
    """Some clients offer HTTP/2 with every request: they are served, body and all, and go on."""
    for body in (b"abc", b"defgh"):
        request = b"POST /echo HTTP/1.1\r\nhost: h\r\n%bcontent-length: %d\r\na: b\r\n\r\n%b" % (
            OFFER,
            len(body),
            body,
        )
        await connection.send(request[:cut])
        await asyncio.sleep(0.01)
        await connection.send(request[cut:])

        head, answer = await connection.answer()

        assert head.startswith(b"HTTP/1.1 200 ")
        assert answer == body


async def test_a_chunked_body_with_an_offer_is_read(connection: Connection) -> None:
    """However the body is framed, an offer doesn't hide it."""
    await connection.send(
        b"POST /echo HTTP/1.1\r\nhost: h\r\n%btransfer-encoding: chunked\r\n\r\n" % OFFER
    )
    await connection.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    assert (await connection.answer())[1] == b"abcde"


async def test_http_2_without_an_offer_is_refused(connection: Connection) -> None:
    """A client that takes HTTP/2 for granted reads a refusal, and that the connection is over."""
    await connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")

    assert (await connection.refusal())["code"] == "malformed_json"
    assert await connection.is_closed()


async def test_this_is_no_proxy(connection: Connection) -> None:
    """A CONNECT is refused with the code."""
    await connection.send(b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere\r\n\r\n")

    assert (await connection.refusal())["code"] == "malformed_json"


async def test_a_client_that_takes_nothing_is_let_go(connection: Connection) -> None:
    """What waits for it stays bounded, and after a while it counts as gone."""
    await connection.send(b"GET /much HTTP/1.1\r\nhost: h\r\n\r\n")
    await connection.held.came.wait()

    async with asyncio.timeout(WAIT_S):
        await connection.held.gone.wait()
    assert connection.held.written < 64 << 20  # the system's own buffers take some


async def test_a_slow_client_is_not_let_go(connection: Connection) -> None:
    """As long as it takes something, however long everything takes."""
    await connection.send(b"GET /much HTTP/1.1\r\nhost: h\r\n\r\n")
    await connection.held.came.wait()
    taken = 0
    for _ in range(30):
        taken += len(await connection.take(1 << 20))
        await asyncio.sleep(STALL_S / 20)

    assert taken == 30 << 20
    assert not connection.held.gone.is_set()


async def test_a_client_that_closes_its_sending_side_has_left(connection: Connection) -> None:
    """Most who do so are gone, and which ones aren't can't be told: the work for them ends."""
    await connection.send(HELD)
    await connection.held.came.wait()
    connection.finish()

    async with asyncio.timeout(WAIT_S):
        await connection.held.gone.wait()
    assert await connection.is_closed()


async def test_a_head_is_asked_for_without_a_body(connection: Connection) -> None:
    """HEAD gets the fields alone, and the connection goes on."""
    await connection.send(b"HEAD /x HTTP/1.1\r\nhost: h\r\n\r\n" + b"")
    assert b"content-length: 1\r\n" in await connection.head()
    await connection.send(GET + b"\r\n")

    assert (await connection.answer())[1] == b"1"


@pytest.mark.parametrize("size", [200_000, 5_000_000])
async def test_who_is_still_sending_can_read_why_it_is_refused(
    connection: Connection, size: int
) -> None:
    """One answer, which says that it is the last, and no reset while the client goes on."""
    head = b"POST /refuse HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n"
    await connection.send(head % (2 * size))
    await connection.send(bytes(size))

    answer, body = await connection.answer()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in answer
    assert body == b"no"
    await connection.send(bytes(size))
    assert await connection.is_closed()


async def test_a_connection_that_lingers_ends(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever never stops sending what nobody wants is cut off."""
    monkeypatch.setattr(protocol, "LINGER_S", 0.05)
    await connection.send(b"POST /refuse HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999\r\n\r\n")
    await connection.answer()

    with pytest.raises(ConnectionError):
        await connection.send_for_ever()


async def test_a_body_that_is_there_costs_no_connection(connection: Connection) -> None:
    """A refusal of a request that has come whole leaves the connection open."""
    for _ in range(2):
        await connection.send(b"POST /refuse HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc")
        answer, _ = await connection.answer()
        assert b"connection: close" not in answer
