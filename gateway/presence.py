"""Runs a request's work for as long as its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive


async def while_present(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``; when the client disconnects first, cancel it and raise ClientDisconnect.

    The body must have been read: what ``receive`` gives next is the disconnect.
    """
    working = asyncio.create_task(work, name="request")
    watching = asyncio.create_task(_until_gone(receive), name="presence")
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        finished = working.done()
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if not finished:
        raise ClientDisconnect
    working.result()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
