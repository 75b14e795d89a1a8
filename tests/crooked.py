"""A relay to Redis that knows where commands and replies end, and answers in Redis's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

Answer = Callable[[str, bytes], bytes]
"""Makes what is answered of a command's name and of Redis's true reply."""


class CrookedWire:
    """``answer`` has the last word on every reply; the commands are carried out nevertheless."""

    def __init__(self, redis_port: int) -> None:
        self.answer: Answer | None = None
        self.opened = 0
        """Connections so far."""
        self._redis_port = redis_port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """The URL of Redis through this wire."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"redis://127.0.0.1:{port}/0"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    def always(self, reply: bytes) -> None:
        """Whatever is asked, this is answered."""
        self.answer = lambda _command, _reply: reply

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.opened += 1
        there = None
        try:
            there = await asyncio.open_connection("127.0.0.1", self._redis_port)
            await self._relay((reader, writer), there)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            for end in (writer, *(there or ())[1:]):
                end.close()

    async def _relay(
        self,
        here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        while True:
            command = await whole(here[0])
            there[1].write(command)
            reply = await whole(there[0])
            if self.answer is not None:
                reply = self.answer(command.split(b"\r\n")[2].decode().upper(), reply)
            here[1].write(reply)
            with suppress(ConnectionError):
                await here[1].drain()


async def whole(reader: asyncio.StreamReader) -> bytes:
    """The bytes of one command or reply of RESP 2."""
    line = await reader.readuntil(b"\n")
    kind, count = line[:1], line[1:-2]
    if kind == b"$" and count != b"-1":
        return line + await reader.readexactly(int(count) + 2)
    if kind == b"*" and count != b"-1":
        return line + b"".join([await whole(reader) for _ in range(int(count))])
    return line


REFUSALS = {
    "busy": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "master down": b"-MASTERDOWN Link with MASTER is down.\r\n",
    "read only": b"-READONLY You can't write against a read only replica.\r\n",
    "disk full": b"-MISCONF Errors writing to the AOF file: No space left on device\r\n",
    "no replicas": b"-NOREPLICAS Not enough good replicas to write.\r\n",
    "full": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "a password": b"-NOAUTH Authentication required.\r\n",
    "another password": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "no permission": b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
    "protected": b"-DENIED Redis is running in protected mode\r\n",
    "cluster down": b"-CLUSTERDOWN The cluster is down\r\n",
    "resharding": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "a cluster": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "a cluster that moves": b"-ASK 3999 127.0.0.1:6381\r\n",
    "a moved word": b"-MOVED\r\n",
    "slots": b"-CROSSSLOT Keys in request don't hash to the same slot\r\n",
    "a script that wrote": b"-UNKILLABLE Sorry the script already executed write commands\r\n",
    "a killed script": b"-ERR Error running script (call to f_1): @user_script:9: Script killed by "
    b"user with SCRIPT KILL...\r\n",
    "made a replica": b"-UNBLOCKED force unblock from blocking operation\r\n",
    "crowded": b"-ERR max number of clients reached\r\n",
    "another's crowd": b"-ERR max number of clients + cluster connections reached\r\n",
    "too old": b"-ERR unknown command `XREAD`, with args beginning with: `a text`, \r\n",
    "no script": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "another type": b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "nothing said": b"-\r\n",
    "no text": b"-\xff\xfe\r\n",
}
"""What Redis, or something in its place, may say instead of an answer."""

GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "bytes": bytes(range(128, 256)) + b"\r\n",
    "zeros": b"\0" * 64 + b"\r\n",
    "an integer in words": b":many\r\n",
    "a length in words": b"$long\r\n",
    "a length below zero": b"$-7\r\n",
    "a count in words": b"*many\r\n",
    "a tower": b"*1\r\n" * 5000,
    "a long line": b"+" + b"x" * 200_000 + b"\r\n",
    "another protocol": b"%1\r\n+a\r\n:1\r\n",
    "a notice": b">4\r\n+MOVING\r\n:1\r\n:2\r\n+127.0.0.1:1\r\n",
}
"""What is no reply at all, or hardly."""

ODD = {
    "an integer": b":7\r\n",
    "below zero": b":-1\r\n",
    "nothing": b"$-1\r\n",
    "no list": b"*-1\r\n",
    "an empty list": b"*0\r\n",
    "a status": b"+OK\r\n",
    "a text": b"$3\r\nxyz\r\n",
    "an empty text": b"$0\r\n\r\n",
    "integers": b"*3\r\n:1\r\n:2\r\n:3\r\n",
    "nothings": b"*2\r\n$-1\r\n$-1\r\n",
    "texts": b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\n\xff\xfe\r\n",
    "lists": b"*1\r\n*2\r\n*0\r\n*0\r\n",
    "an entry": b"*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n",
    "errors": b"*2\r\n-ERR x\r\n-BUSY y\r\n",
}
"""Replies, but to something else."""
