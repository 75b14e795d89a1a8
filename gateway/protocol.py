"""HTTP/1.1 by uvicorn and httptools, with bounds that neither has: a head's size, fields and time,
and the time that a client may take nothing of what is there for it.

A head is what comes before a body: request line and header fields. What breaks a bound, or is no
HTTP, is answered with ``malformed_json`` in the envelope, like a body that can't be read. A client
that takes too long over a head is not answered: its connection is closed.

Requests are not pipelined. One that comes before the answer to the one before it is complete is not
taken, and the connection closes after that answer, so that the client sends it again (RFC 9112,
9.3.2); nor is anything else that comes then. So reading never pauses, and a client that leaves is
always noticed. An answer is complete for its client with its last byte, which may be a moment
before whoever answers says that it was the last: what comes in that moment is heard after it. A
client that closes only its sending side has left, too: most who do are gone, and which ones aren't
can't be told.

An answer that leaves before its request's body is whole is the connection's last. What still comes
is dropped for ``LINGER_S`` before it is closed: a client that is busy sending would otherwise be
reset before it has read why. An answer that its application leaves without an end is broken off.

What is there for a client waits in the process up to a mark, above which nobody writes. A client
that takes nothing for ``send_stall_s`` is let go, whatever was still to be said.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.envelope import error_body, error_headers
from gateway.parser import PlainParser
from shared.errors import SpeechError

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a head that does not come in one piece; the socket's buffer bounds one that does."""
MAX_EARLY_BYTES: Final = 2 * MAX_HEAD_BYTES
MAX_FIELDS: Final = 100
HEAD_TIMEOUT_S: Final = 20.0
"""From the connection, or the first byte of a further request, to the end of the head."""
SEND_STALL_S: Final = 30.0
LINGER_S: Final = 2.0
SYSTEM_BUFFER_BYTES: Final = 128 << 10

log = structlog.get_logger()


class Outlet:
    """What a request's answer is written to: its connection's transport, but for the end."""

    def __init__(self, connection: BoundedHttp) -> None:
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.finish


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    parser: Any

    def __init__(
        self,
        *args: Any,
        send_stall_s: float = SEND_STALL_S,
        is_draining: Callable[[], bool] = lambda: False,
        has_room: Callable[[int], bool] = lambda _: True,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._is_draining, self._has_room = is_draining, has_room
        self.parser = PlainParser(self)
        self.is_deaf = False
        self._may_be_kept = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._send_stall_s = send_stall_s
        self._stall_timer: asyncio.TimerHandle | None = None
        self._untaken = 0
        self._linger_timer: asyncio.TimerHandle | None = None
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._bound_system_buffer()
        if self._has_room(len(self.connections)):
            self._expect_head()
        else:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        """No timer keeps what is gone: as many as come and are reset would lie in memory."""
        self._got_head()
        self._stop_stall_timer()
        self._unset_keepalive_if_required()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        if self._has_said_all:
            self._keep_for_later(data)
            return
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("the request's head is too large")
        elif self._head_timer is None and not self._answering and not self.is_deaf:
            self._expect_head()  # what came was no head, and stopped the timer of the idle

    def on_message_begin(self) -> None:
        if self._answering:
            self.is_deaf, self.cycle.keep_alive = True, False
            self.headers = []
            return
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        if self.is_deaf or self.parser.should_upgrade():
            return
        self._got_head()
        if len(self.headers) > MAX_FIELDS:
            raise ValueError("too many header fields")  # the parser's caller answers with a 400
        self._stop_stall_timer()
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, Outlet(self))
        self._may_be_kept = self.cycle.keep_alive and not self._is_draining()
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self.is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.is_deaf or self.parser.should_upgrade():
            return
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._may_be_kept

    def take_no_more(self) -> None:
        """Say with the answer that is under way that it is this connection's last."""
        self._may_be_kept = False
        if self._answering:
            self.cycle.keep_alive = False

    def finish(self) -> None:
        """Close this connection after the answer that was given, if it is whole, else at once."""
        if self.transport.is_closing() or self._answering or not self.cycle.more_body:
            self.transport.close()
            return
        self._hang_up()

    def _hang_up(self) -> None:
        """Nothing more is said, and nothing is heard while what was said still leaves."""
        self.is_deaf = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """As uvicorn's, which takes an answer without an end for a defect, and logs it as one."""

        async def answered(*request: Any) -> None:
            await app(*request)
            if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
                cycle.disconnected = True
                self.transport.close()

        super()._start_asgi_task(cycle, answered)

    def let_go(self) -> None:
        """End this connection now, whatever was still to be said."""
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()
        if not self._answering:
            self._start_stall_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_stall_timer()
        early, self._early = bytes(self._early), bytearray()
        if early and not self.transport.is_closing():
            self.data_received(early)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _has_said_all(self) -> bool:
        """Whether the answer under way, to a whole request, has been written to its last byte."""
        cycle = self.cycle
        if cycle is None or not self._answering or not cycle.response_started or cycle.more_body:
            return False
        is_head = cycle.scope["method"] == "HEAD"
        return is_head or not (cycle.chunked_encoding or cycle.expected_content_length)

    def send_400_response(self, msg: str) -> None:
        """The envelope in place of uvicorn's plain text, then the end of the connection.

        What is no HTTP behind a whole request, or in the midst of an answer, has no answer of its
        own: it would stand in the other's place.
        """
        self._got_head()
        if self._answering and (self.is_deaf or self.cycle.response_started):
            self.is_deaf, self.cycle.keep_alive = True, False
            return
        self._say(SpeechError("malformed_json", msg))
        self.transport.close()

    def _turn_away(self) -> None:
        """There are as many connections as there may be: the answer is there before the request."""
        self._say(
            SpeechError(
                "too_many_waiting", "this gateway has too many connections", retry_after_s=1
            )
        )
        self._hang_up()

    def _say(self, error: SpeechError) -> None:
        body = json.dumps({"error": error_body(error)}, separators=(",", ":")).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **error_headers(error, None),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        status = HTTPStatus(error.status)
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.transport.write(f"{line}{head}\r\n".encode() + body)

    def _keep_for_later(self, data: bytes) -> None:
        """What a client sends that has its answer before we know it: a request at most."""
        self._early += data
        if len(self._early) > MAX_EARLY_BYTES:
            self.is_deaf, self.cycle.keep_alive = True, False

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._too_slow)

    def _got_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _bound_system_buffer(self) -> None:
        """Else the system takes megabytes for a client that takes nothing."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BUFFER_BYTES)

    def _start_stall_timer(self) -> None:
        """While nothing is added to what waits for the client, see to it that it gets less."""
        self._untaken = self.transport.get_write_buffer_size()
        if self._stall_timer is None and self._untaken:
            self._stall_timer = self.loop.call_later(self._send_stall_s, self._check_reader)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_reader(self) -> None:
        self._stall_timer, before = None, self._untaken
        if self.transport.get_write_buffer_size() < before:
            self._start_stall_timer()
        else:
            log.warning("reader_stalled", untaken_bytes=before, stall_s=self._send_stall_s)
            self.transport.abort()

    def _too_slow(self) -> None:
        self._got_head()
        self.transport.close()
