"""A relay between processes and Redis that a test cuts, stops up, or makes lose replies."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress

PIECE = 65_536


class Wire:
    """``lossy`` is the chance that a reply is lost and its connection with it, when Redis has
    carried the command out.
    """

    def __init__(self, redis_port: int, seed: int = 5) -> None:
        self.lossy = 0.0
        self.lost = 0
        self._redis_port = redis_port
        self._dice = random.Random(seed)
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """The URL of Redis through this wire."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"redis://127.0.0.1:{port}/0"

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Every connection breaks, and new ones do at once."""
        self._is_cut = True
        for end in self._ends:
            end.close()

    def reset(self) -> None:
        """Every connection breaks as when a host forgets it; new ones hold."""
        for end in self._ends:
            linger = struct.pack("ii", 1, 0)  # for no time: what was not sent is dropped
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            end.transport.abort()

    def stop_up(self) -> None:
        """Connections stay, and nothing comes through; what is sent arrives when it is mended."""
        self._flows.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._redis_port)
        except OSError:
            writer.close()
            return
        ends = (writer, there[1])
        self._ends.update(ends)
        await asyncio.gather(
            self._pump(reader, ends[1], ends, lossy=False),
            self._pump(there[0], ends[0], ends, lossy=True),
        )
        self._ends.difference_update(ends)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, ...],
        *,
        lossy: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(PIECE):
                await self._flows.wait()
                if lossy and self._dice.random() < self.lossy:
                    self.lost += 1
                    break
                sink.write(data)
                await sink.drain()
        for end in ends:
            end.close()
