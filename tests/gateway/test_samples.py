"""What is held of answers in one piece: bounded in sum, and nothing once nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.delivery import ENCODERS
from gateway.formats import Transport
from gateway.player import Line
from gateway.samples import HELD_BYTES
from shared.wav import FRAME_BYTES
from tests.conftest import until
from tests.gateway.test_formats import decode
from tests.gateway.world import TIMEOUT_MS, World, pcm

HELLO: dict[str, Any] = {"input": "Hello.", "request_id": "r1"}
FRAMES = 10


def held(world: World) -> int:
    return HELD_BYTES - int(world.gateway.budget.left)


@pytest.mark.parametrize("response_format", ["wav", "flac"])
async def test_who_leaves_before_the_end_gives_the_room_back(
    world: World, response_format: str
) -> None:
    """Frames that were held for a client that hung up are no longer counted."""
    call = world.post({**HELLO, "response_format": response_format})
    claim = await world.worker.claim()
    world.worker.post(claim, *range(FRAMES))
    await until(lambda: held(world) == FRAMES * FRAME_BYTES)

    await call.hang_up()

    assert held(world) == 0


async def test_who_is_refused_after_all_gives_the_room_back(world: World) -> None:
    """An answer that breaks before its end holds nothing."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, *range(FRAMES))
    world.worker.end(claim, FRAMES, reason="error", failure_code="csm_synthesis_failed")

    assert (await call.answer()).code == "csm_synthesis_failed"
    await call.task
    assert held(world) == 0


async def never_taken(line: Line, pieces: AsyncIterator[bytes]) -> None:
    """A client that reads the head and then nothing."""
    await asyncio.Event().wait()


async def test_a_compressed_body_counts_while_it_waits_to_be_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its samples' place, and its size is announced."""
    body = {**HELLO, "response_format": "flac"}
    call = world.post(body)
    await world.worker.speak(FRAMES)
    size = len((await call.answer()).body)
    await call.task

    monkeypatch.setattr(Line, "write_all", never_taken)
    slow = world.post(body)
    _, headers = await slow.start()

    assert held(world) == size == int(headers["content-length"])
    await slow.hang_up()
    assert held(world) == 0


async def test_a_compressed_body_without_room_is_made_as_it_is_taken(world: World) -> None:
    """Nothing of it is held; its size isn't known beforehand, its samples are the same."""
    world.gateway.budget.left = 0
    call = world.post({**HELLO, "response_format": "flac"})
    await world.worker.speak(FRAMES)

    answer = await call.answer()

    assert "content-length" not in answer.headers
    assert decode(answer.body).samples.tobytes() == b"".join(map(pcm, range(FRAMES)))
    assert world.gateway.budget.left == 0


async def test_nobody_waits_past_the_deadline_for_a_crowd_of_encoders(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose turn for one of those doesn't come in time is compressed as it is taken."""
    release = threading.Event()
    monkeypatch.setattr(Transport, "encoded", lambda *_: release.wait() and b"")
    flac = {"input": "Hello.", "response_format": "flac"}
    crowd = [world.post(flac) for _ in range(ENCODERS)]
    for _ in crowd:
        await world.worker.speak(1)

    late = world.post({**flac, "timeout_ms": TIMEOUT_MS})
    await world.worker.speak(FRAMES)
    try:
        answer = await late.answer()
    finally:
        release.set()

    assert "content-length" not in answer.headers
    assert decode(answer.body).samples.tobytes() == b"".join(map(pcm, range(FRAMES)))
    assert [(await each.answer()).status for each in crowd] == [200] * ENCODERS
