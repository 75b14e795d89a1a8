"""Work lives as long as its client."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

from gateway import presence
from gateway.presence import Presence
from tests.conftest import WAIT_S

LAST: Message = {"type": "http.response.body", "body": b"", "more_body": False}
MORE: Message = {"type": "http.response.body", "body": b"", "more_body": True}


class Client:
    """A client that leaves when told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.heard: list[Message] = []

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.heard.append(message)


async def test_work_is_cancelled_when_its_client_leaves() -> None:
    """A client that leaves before its answer is complete ends the work."""
    client, ended = Client(), asyncio.Event()

    async def work(send: Send) -> None:
        await send(MORE)
        client.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ClientDisconnect):
        await Presence(client.receive, client.send).run(work)

    assert ended.is_set()


async def test_a_cancellation_that_is_lost_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that goes on for nobody, since a library forgot that it was cancelled, ends all the
    same.
    """
    monkeypatch.setattr(presence, "CANCEL_AGAIN_S", 0.01)
    client = Client()

    async def work(_: Send) -> None:
        client.gone.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        await asyncio.wait_for(Presence(client.receive, client.send).run(work), WAIT_S)


async def test_a_disconnect_after_the_answer_is_no_news() -> None:
    """What is left to do after the last byte is done, though the server says the client is gone."""
    client, tidied = Client(), False

    async def work(send: Send) -> None:
        nonlocal tidied
        await send(LAST)
        client.gone.set()
        for _ in range(5):
            await asyncio.sleep(0)
        tidied = True

    await Presence(client.receive, client.send).run(work)

    assert tidied


async def test_a_failure_of_the_work_is_raised() -> None:
    """What the work raises, its caller hears."""
    client = Client()

    async def work(_: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Presence(client.receive, client.send).run(work)


async def test_cancelling_the_request_cancels_its_work() -> None:
    """A server that gives a request up takes its work along."""
    client, started, ended = Client(), asyncio.Event(), asyncio.Event()

    async def work(_: Send) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    request = asyncio.create_task(Presence(client.receive, client.send).run(work))
    await started.wait()
    request.cancel()

    with pytest.raises(asyncio.CancelledError):
        await request
    assert ended.is_set()
