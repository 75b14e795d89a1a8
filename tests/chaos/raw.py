"""Connections below HTTP: clients that read badly, talk rubbish, or leave as they like.

``RawClient`` has as small a receive buffer as the system allows, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit


class RawClient:
    """One TCP connection."""

    def __init__(self, *, is_small: bool = True) -> None:
        self._socket = socket.socket()
        if is_small:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.setblocking(False)

    async def connect(self, url: str) -> None:
        where = urlsplit(url)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (where.hostname, where.port))

    async def send(self, data: bytes) -> bool:
        """Whether the other side still took it."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except (ConnectionError, BrokenPipeError):
            return False
        return True

    async def read(self, most: int) -> bytes:
        """What is there, at most so much; nothing when the other side has closed."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, most)
        except ConnectionError:
            return b""

    def finish(self) -> None:
        """Send nothing more, if it is still connected."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """As when a host forgets the connection: whatever is unread or unsent is dropped."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()


def speech_request(body: dict[str, Any]) -> bytes:
    """The bytes of a whole request for speech."""
    data = json.dumps(body).encode()
    head = (
        "POST /psionic/csm/speech HTTP/1.1\r\nhost: here\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
