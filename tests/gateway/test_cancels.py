"""Cancels, of what waits, what runs, and what has not come yet."""

from __future__ import annotations

from tests.gateway.world import World

HELLO = {"input": "Hello.", "request_id": "r1"}
CANCELLATIONS = "/psionic/csm/cancellations"


async def test_a_queued_request_is_cancelled_at_once(world: World) -> None:
    """Cancelled in the queue: 202 to the one, 409 to the other."""
    call = world.post({**HELLO, "cancellation_id": "turn"})
    await world.worker.hints.get()

    cancel = await world.refused({"cancellation_id": "turn"}, CANCELLATIONS)
    answer = await call.answer()

    assert cancel.status == 202
    assert cancel.json() == {"hits": [{"request_id": "r1", "was": "queued"}], "remembered": True}
    assert (answer.status, answer.code) == (409, "cancelled")
    assert answer.error["type"] == "conflict_error"
    assert answer.headers["x-should-retry"] == "false"


async def test_a_running_request_is_cancelled_between_frames(world: World) -> None:
    """Cancelled while it runs: the worker is told at its next frame and ends it."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    cancel = await world.refused({"request_id": "r1"}, CANCELLATIONS)
    assert world.worker.post(claim, 1) == ["cancelled"]
    world.worker.end(claim, 1, "cancelled", failure_code="cancelled")

    assert cancel.json() == {"hits": [{"request_id": "r1", "was": "running"}], "remembered": False}
    assert (await call.answer()).code == "cancelled"
    retry = await world.refused(HELLO)
    assert (retry.code, retry.headers["x-psionic-csm-replayed"]) == ("cancelled", "true")


async def test_a_cancel_that_comes_first_wins(world: World) -> None:
    """A cancel of something unknown is remembered for the request that is still on its way."""
    cancel = await world.refused({"cancellation_id": "turn"}, CANCELLATIONS)
    answer = await world.refused({**HELLO, "cancellation_id": "turn"})

    assert cancel.json() == {"hits": [], "remembered": True}
    assert answer.code == "cancelled"
