"""The door: in turn, in order, and nobody waits for what another has found out already."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.door import Door
from scheduler.asking import QueueAway
from shared.errors import SpeechError
from tests.conftest import WAIT_S


class Admissions:
    """Admissions that take until they are told to go on, and fail if they are told so."""

    def __init__(self, door: Door) -> None:
        self.begun: list[int] = []
        self.go_on = asyncio.Event()
        self.failure: SpeechError | None = None
        self._door = door

    async def admit(self, number: int) -> str:
        try:
            async with self._door.turn():
                self.begun.append(number)
                await self.go_on.wait()
                if self.failure is not None:
                    raise self.failure
        except SpeechError as error:
            return error.code
        return "admitted"

    async def crowd(self, count: int) -> list[asyncio.Task[str]]:
        """So many come, one after another, and those who can are being admitted."""
        tasks = [asyncio.create_task(self.admit(number)) for number in range(count)]
        await asyncio.sleep(0)
        return tasks


async def test_a_few_pass_at_once_and_the_rest_in_order() -> None:
    """No more than the door takes are being admitted, and nobody is overtaken."""
    admissions = Admissions(Door(2, 5))
    crowd = await admissions.crowd(6)
    assert admissions.begun == [0, 1]

    admissions.go_on.set()

    assert await asyncio.gather(*crowd) == ["admitted"] * 6
    assert admissions.begun == [0, 1, 2, 3, 4, 5]


async def test_who_finds_redis_away_says_so_to_all_at_the_door() -> None:
    """Those behind hear it at once instead of each after a time limit of their own."""
    admissions = Admissions(Door(2, 60))
    admissions.failure = QueueAway()
    crowd = await admissions.crowd(100)

    admissions.go_on.set()

    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*crowd) == ["queue_unavailable"] * 100
    assert admissions.begun == [0, 1]


@pytest.mark.parametrize("code", ["queue_full", "queue_unavailable"])
async def test_a_refusal_of_one_is_no_refusal_of_all(code: str) -> None:
    """Whoever is refused for a reason of their own, such as an outcome that isn't kept any more,
    only makes room.
    """
    admissions = Admissions(Door(1, 60))
    admissions.failure = SpeechError(code, "for a reason of their own")
    crowd = await admissions.crowd(3)

    admissions.go_on.set()

    assert await asyncio.gather(*crowd) == [code] * 3
    assert admissions.begun == [0, 1, 2]


async def test_who_waits_too_long_hears_of_the_crowd() -> None:
    """A turn that doesn't come is an overload, not an outage."""
    admissions = Admissions(Door(1, 0.02))
    crowd = await admissions.crowd(3)

    assert [await task for task in crowd[1:]] == ["too_many_waiting"] * 2
    admissions.go_on.set()
    assert await crowd[0] == "admitted"


async def test_a_process_that_stood_still_turns_nobody_away() -> None:
    """What passed while nothing ran at all is not counted as a wait in the crowd."""
    admissions = Admissions(Door(1, 0.2))
    crowd = await admissions.crowd(3)
    await asyncio.sleep(0)
    time.sleep(0.6)  # noqa: ASYNC251  the whole process, as when it is stopped
    await asyncio.sleep(0)
    admissions.go_on.set()

    assert await asyncio.gather(*crowd) == ["admitted"] * 3


async def test_a_process_that_is_late_again_and_again_turns_away() -> None:
    """A slow process must not keep its door's queue for ever: who was let off once is told then."""
    admissions = Admissions(Door(1, 0.1))
    crowd = await admissions.crowd(2)
    for _ in range(3):
        time.sleep(0.3)  # noqa: ASYNC251  whatever keeps the loop busy
        for _ in range(3):
            await asyncio.sleep(0)

    assert crowd[1].done()
    assert await crowd[1] == "too_many_waiting"
    admissions.go_on.set()
    assert await crowd[0] == "admitted"


async def test_nobody_waits_for_a_turn_past_their_own_time() -> None:
    """A caller with a short timeout hears of the crowd by then."""
    door = Door(1, 60)
    async with door.turn():
        with pytest.raises(SpeechError, match="too_many_waiting"):
            async with asyncio.timeout(WAIT_S), door.turn(0.01):
                pass


@pytest.mark.parametrize("gone", [1, 2])
async def test_who_leaves_the_queue_takes_no_place_along(gone: int) -> None:
    """A client that goes away, also in the moment when its turn comes, blocks nobody."""
    admissions = Admissions(Door(1, 5))
    crowd = await admissions.crowd(4)
    admissions.go_on.set()
    await asyncio.sleep(0)
    crowd[gone].cancel()

    await asyncio.gather(*crowd, return_exceptions=True)

    assert await admissions.admit(9) == "admitted"
