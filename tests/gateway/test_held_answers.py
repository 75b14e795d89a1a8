"""Answers in one piece that there is no room to hold: the same ones, read a second time."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.encoders import working_encoders
from gateway.formats import PLAIN_FORMATS
from gateway.samples import HELD_BYTES
from scheduler.asking import QueueAway
from scheduler.results import Results
from shared.messages import FrameRecord
from shared.wav import FRAME_BYTES
from tests.exposition import samples
from tests.gateway.world import SPEECH, World

HELLO = {"input": "Hello.", "request_id": "r1"}
AUDIO = SPEECH + "/{request_id}/audio"


@pytest.mark.parametrize("response_format", PLAIN_FORMATS)
async def test_an_answer_over_the_budget_is_the_same_answer(
    world: World, response_format: str
) -> None:
    """When too much is held for others, samples are read again as they leave; nobody can tell."""
    frames = 40
    body = {**HELLO, "response_format": response_format}
    call = world.post(body)
    await world.worker.speak(frames)
    roomy = await call.answer()
    room = world.gateway.budget.left
    world.gateway.budget.left = 3 * FRAME_BYTES
    call = world.post({**body, "request_id": "r2"})
    await world.worker.speak(frames)
    tight = await call.answer()
    again = await world.refused({**body, "request_id": "r2"})

    assert (tight.status, again.status) == (200, 200)
    assert roomy.body == tight.body == again.body
    assert int(tight.headers["content-length"]) == len(tight.body)
    assert world.gateway.budget.left == 3 * FRAME_BYTES
    assert room == HELD_BYTES


@pytest.mark.parametrize("response_format", working_encoders())
async def test_a_compressed_answer_over_the_budget_is_as_if_streamed(
    world: World, response_format: str
) -> None:
    """Nothing of it can be held, so its size isn't known before it has left."""
    body = {**HELLO, "response_format": response_format}
    call = world.post({**body, "stream_format": "audio"})
    await world.worker.speak(40)
    streamed = await call.answer()
    world.gateway.budget.left = 0

    tight = await world.refused(body)

    assert (tight.status, tight.body) == (200, streamed.body)
    assert "content-length" not in tight.headers
    assert world.gateway.budget.left == 0


async def test_audio_that_goes_while_it_is_handed_over_breaks_the_transfer(world: World) -> None:
    """Nobody takes a part for the whole: the body ends before its announced length."""
    world.gateway.budget.left = 0
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, *range(40))
    world.gateway.reader.subscribe = _forgetting(world, claim.job_id)
    world.worker.end(claim, 40)

    status, headers = await call.start()
    heard = b""
    while piece := await call.part():
        heard += piece

    assert status == 200
    assert not call.finished
    assert len(heard) < int(headers["content-length"])


async def test_a_result_s_audio_that_goes_meanwhile_breaks_the_transfer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status has left, so the body ends early; that is Redis's doing and no defect of ours."""
    call = world.post(HELLO)
    await world.worker.speak(40)
    await call.answer()
    frames = Results.frames
    reads = itertools.count()

    async def lost_in_the_second(results: Results, job_id: str) -> AsyncIterator[FrameRecord]:
        is_second = next(reads) == 1
        async for frame in frames(results, job_id):
            if is_second and frame.index == 20:
                raise QueueAway
            yield frame

    monkeypatch.setattr(Results, "frames", lost_in_the_second)
    call = world.call("GET", f"{SPEECH}/r1/audio")
    status, headers = await call.start()
    heard = b""
    while piece := await call.part():
        heard += piece
    await call.task

    assert status == 200
    assert not call.finished
    assert 0 < len(heard) < int(headers["content-length"])
    counted = {
        key[1:] for key, count in samples((await world.get("/metrics")).body).items() if count
    }
    assert ("queue_unavailable", AUDIO, "backend_unavailable") in counted
    assert ("internal_error", AUDIO, "server_error") not in counted


def _forgetting(world: World, job_id: str) -> Any:
    subscribe = type(world.gateway.reader).subscribe

    def forget(*args: Any, **options: Any) -> Any:
        world.redis.delete(world.keys.events(job_id))
        return subscribe(world.gateway.reader, *args, **options)

    return forget
