"""Callers that hang up: their work stops, unless somebody else listens."""

from __future__ import annotations

from tests.gateway.world import World, pcm

HELLO = {"input": "Hello.", "request_id": "r1"}


async def test_a_caller_that_hangs_up_in_the_queue_takes_its_job_along(world: World) -> None:
    """The job of a caller that is gone is not spoken, and its id is free."""
    call = world.post(HELLO)
    hint = await world.worker.hints.get()

    await call.hang_up()

    assert world.state(hint) == "ended"
    assert world.field(hint, "abandoned") == "1"
    assert world.worker.queue.claim("e") is None


async def test_a_caller_that_hangs_up_stops_its_worker(world: World) -> None:
    """The worker hears at its next frame that nobody listens."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    assert world.worker.post(claim, 0) == ["ok"]

    await call.hang_up()

    assert world.worker.post(claim, 1) == ["cancelled"]


async def test_hanging_up_leaves_the_others_listening(world: World) -> None:
    """Of two callers of one request, one may leave; the other gets the whole answer."""
    first = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)
    second = world.post({**HELLO, "stream_format": "audio", "response_format": "pcm"})
    status, headers = await second.start()

    await first.hang_up()
    world.worker.post(claim, 1)
    world.worker.end(claim, 2)

    assert (status, await second.part() + await second.part()) == (200, pcm(0) + pcm(1))
    assert "x-psionic-csm-replayed" not in headers
