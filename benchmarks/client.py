"""A caller that costs little beside what it calls: HTTP/1.1 on kept connections, for loads.

A general client takes a millisecond of processor per call, as much as the gateway that it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import httptools

BROKEN: Final = 0
"""The status of a call whose connection broke before its answer was whole."""


@dataclass(slots=True)
class Reply:
    """``lines_at``: when each line of the body was whole, on ``time.perf_counter``'s clock."""

    status: int = BROKEN
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    lines_at: list[float] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def code(self) -> str | None:
        """The code of a refusal, None for a success."""
        return None if self.status == 200 else self.headers.get("x-psionic-csm-failure-code")


class Caller:
    """One gateway's callers. Connections are kept and used again; use it on one event loop.

    Raises ValueError for a URL that isn't plain HTTP.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http":
            raise ValueError(f"not a plain http:// URL: {url}")
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: deque[_Connection] = deque()
        self._all: set[_Connection] = set()
        key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = f"host: {self._host}:{self._port}\r\n{key}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Break every connection off."""
        for each in list(self._all):
            each.abort()

    async def post(self, path: str, document: dict[str, Any]) -> Reply:
        body = json.dumps(document).encode()
        kind = "content-type: application/json\r\n"
        return await self._call(f"POST {path}", kind, body)

    async def get(self, path: str) -> Reply:
        return await self._call(f"GET {path}", "", b"")

    async def _call(self, line: str, kind: str, body: bytes) -> Reply:
        """The reply; its status is ``BROKEN`` when the connection broke. Raises OSError."""
        connection = await self._connection()
        head = f"{line} HTTP/1.1\r\n{self._head}{kind}content-length: {len(body)}\r\n\r\n"
        try:
            reply = await connection.exchange(head.encode() + body)
        except asyncio.CancelledError:
            connection.abort()
            raise
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.abort()
        return reply

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self._all), self._host, self._port
        )
        return connection


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self, register: set[_Connection]) -> None:
        self._register = register
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._reply = Reply()
        self._keeps = True

    @property
    def usable(self) -> bool:
        return self._keeps and self._transport is not None

    async def exchange(self, request: bytes) -> Reply:
        if self._transport is None:
            raise ConnectionResetError("the connection broke before it was used")
        self._reply = reply = Reply()
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done
        return reply

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._register.add(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._register.discard(self)
        self._reply.status = BROKEN
        self._finish()

    # the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        self._reply.body += piece
        if lines := piece.count(b"\n"):
            self._reply.lines_at += [time.perf_counter()] * lines

    def on_message_complete(self) -> None:
        self._reply.status = self._parser.get_status_code()
        self._keeps = self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        self._reply = Reply()  # what comes unasked belongs to nobody
