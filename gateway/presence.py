"""Runs a request's work for as long as its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

CANCEL_AGAIN_S: Final = 0.1
"""Little more than a frame, so that a lane is free about as soon as it would be otherwise."""


class Presence:
    """One client, whose request's body has been read: what it sends next is its disconnect.

    A server also tells a disconnect when the answer is complete; that one is no news.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._answered = False

    async def run(self, work: Callable[[Send], Awaitable[None]]) -> None:
        """Await ``work(send)``; when the client leaves before its answer is complete, cancel that
        and raise ClientDisconnect.
        """
        working = asyncio.ensure_future(work(self._watched_send))
        watching = asyncio.create_task(self._until_gone(), name="presence")
        waiting: set[asyncio.Future[Any]] = {working, watching}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and self._answered:
                await asyncio.wait({working})
            finished = working.done()
        finally:
            watching.cancel()
            await _ended(working)
            await asyncio.gather(working, watching, return_exceptions=True)
        if not finished:
            raise ClientDisconnect
        working.result()

    async def _watched_send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._answered = True

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _ended(work: asyncio.Future[None]) -> None:
    """Cancel until it ends. One cancellation may be lost on its way: before Python 3.12,
    ``asyncio.wait_for``, with which redis-py sends, forgets one that comes as its wait is over.
    """
    while not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=CANCEL_AGAIN_S)
