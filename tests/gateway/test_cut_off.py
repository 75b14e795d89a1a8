"""A gateway whose grace is over: who is still inside is told, whatever it was waiting for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.player import Line
from tests.gateway.streamed import AUDIO, FRAMED, stream_name
from tests.gateway.world import Answer, Call, World

HELLO: dict[str, Any] = {"input": "Hello.", "request_id": "r1"}
STREAMED = [*FRAMED, AUDIO]


async def cut_off(world: World, call: Call) -> dict[str, Any]:
    """What the log says of a request that is cut off."""
    with capture_logs() as logs:
        world.gateway.drain()
        world.gateway.cut_off()
        async with asyncio.timeout(30):
            await call.task
    (said,) = (line for line in logs if line["event"] == "request")
    return dict(said)


@pytest.mark.parametrize("body", STREAMED, ids=stream_name)
async def test_who_takes_nothing_is_broken_off_and_logged_with_the_code(
    world: World, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """An answer that waits for its reader can't be told any more, but it wasn't one that left."""
    begun = asyncio.Event()

    async def never_taken(line: Line, data: bytes, *, more: bool = True) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Line, "write", never_taken)
    call = world.post({**HELLO, **body})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    await asyncio.wait_for(begun.wait(), 30)

    said = await cut_off(world, call)

    assert (said["status"], said["code"]) == (200, "draining")
    assert (await call.start())[0] == 200
    assert await call.part() == b""


@pytest.mark.parametrize("body", [HELLO, *STREAMED], ids=["one piece", *map(stream_name, STREAMED)])
async def test_who_has_heard_nothing_yet_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """Also while the gateway finds out what serves it, or why it can't."""
    asked = asyncio.Event()
    served = world.gateway.facts.served

    async def after_the_cut(*what: Any) -> Any:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return await served(*what)

    monkeypatch.setattr(world.gateway.facts, "served", after_the_cut)
    call = world.post({**HELLO, **body})
    claim = await world.worker.claim()
    if "stream" in body or "stream_format" in body:
        world.worker.post(claim, 0)
    else:
        world.worker.end(claim, 0, "error", failure_code="csm_synthesis_failed")
    await asyncio.wait_for(asked.wait(), 30)

    said = await cut_off(world, call)

    answer: Answer = await call.answer()
    assert (answer.status, answer.code) == (503, "draining")
    assert said["code"] == "draining"
