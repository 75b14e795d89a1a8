"""Processes that die or stall while people are being spoken to: the books stay right."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tests.chaos.conftest import Answer, Chaos
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

REFUSALS = {"queue_full", "deadline_unmeetable"}


async def undisturbed(chaos: Chaos) -> str:
    answer = await chaos.speak()
    assert answer.digest is not None
    return answer.digest


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
async def test_a_killed_worker_costs_nobody_a_word(chaos: Chaos, delay_s: float) -> None:
    """Whoever it was speaking to, or about to, gets the answer of an undisturbed run."""
    expected = await undisturbed(chaos)
    callers = [asyncio.create_task(chaos.speak()) for _ in range(4)]
    if delay_s:
        await chaos.running(1)
    await asyncio.sleep(delay_s)
    chaos.signal("gpu_worker", signal.SIGKILL)

    answers = await asyncio.gather(*callers)

    assert {(answer.status, answer.digest) for answer in answers} == {(200, expected)}
    await chaos.settled()


@pytest.mark.parametrize(("role", "seconds"), [("gpu_worker", 4.5), ("redis", 4.5)])
async def test_a_stalled_process_costs_nobody_a_word(
    chaos: Chaos, role: str, seconds: float
) -> None:
    """A worker past its lease, a Redis past every time limit."""
    expected = await undisturbed(chaos)
    callers = [asyncio.create_task(chaos.speak()) for _ in range(4)]
    await chaos.running(2)
    await chaos.stall(role, seconds)

    answers = await asyncio.gather(*callers)

    assert {(answer.status, answer.digest) for answer in answers} == {(200, expected)}
    await chaos.settled()


async def test_a_stalled_gateway_costs_nobody_a_word(chaos: Chaos) -> None:
    """Stopped for longer than its Redis calls may take, and than results are kept for others."""
    expected = await undisturbed(chaos)
    callers = [asyncio.create_task(chaos.speak()) for _ in range(4)]
    await chaos.running(2)
    await chaos.stall("gateway", 3.5)

    answers = await asyncio.gather(*callers)

    assert {(answer.status, answer.digest) for answer in answers} == {(200, expected)}
    await chaos.settled()


async def test_redis_at_its_memory_limit_finishes_what_it_began(chaos: Chaos) -> None:
    """Newcomers are refused with the code, those inside are served, and then all is as before."""
    expected = await undisturbed(chaos)
    callers = [
        asyncio.create_task(chaos.speak(max_audio_length_ms=8000)),
        asyncio.create_task(chaos.speak()),
    ]
    await chaos.running(2)
    used = int(chaos.redis.info("memory")["used_memory"])
    chaos.redis.config_set("maxmemory", used // 2)
    refused = await chaos.speak()
    answers = await asyncio.gather(*callers)
    chaos.redis.config_set("maxmemory", 0)

    assert refused == Answer(503, "queue_memory_low")
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[1].digest == expected
    await chaos.settled()
    assert (await chaos.speak(max_audio_length_ms=8000)).status == 200


async def test_another_redis_behind_the_name_is_an_answer_and_not_a_wait(chaos: Chaos) -> None:
    """Killed without its data, it comes back empty: callers hear at once, and all goes on."""
    callers = [asyncio.create_task(chaos.speak(max_audio_length_ms=15_000)) for _ in range(4)]
    await chaos.running(2)
    chaos.signal("redis", signal.SIGKILL)

    async with asyncio.timeout(15):
        answers = await asyncio.gather(*callers)

    assert {answer.code for answer in answers} == {"queue_unavailable"}
    await chaos.settled()
    assert (await chaos.speak()).status == 200


async def test_a_storm_of_cancels_and_departures_leaves_nothing(chaos: Chaos) -> None:
    """By id, by turn, by disconnect, at random moments: no lane, listener or key is left."""
    dice = random.Random(5)
    await undisturbed(chaos)  # what a first call leaves behind for good is there
    before = chaos.keys()

    async def caller(number: int, way: str, after_s: float) -> Answer | None:
        id_ = f"storm-{number}"
        speaking = asyncio.create_task(
            chaos.speak(id_, cancellation_id=id_, max_audio_length_ms=1600, input="Hello you.")
        )
        await asyncio.sleep(after_s)
        if way == "drop":
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            return None
        if way != "stay":
            name = "request_id" if way == "id" else "cancellation_id"
            assert await chaos.cancel(**{name: id_}) == 202
        return await speaking

    ways = ("id", "turn", "drop", "stay")
    answers = await asyncio.gather(
        *(caller(n, dice.choice(ways), 4 * dice.random()) for n in range(120))
    )

    codes = {answer.code for answer in answers if answer is not None}
    assert codes <= {None, "cancelled", *REFUSALS}
    await chaos.settled()
    # Results, cancels and RQ's leftovers run out.
    await until(lambda: not chaos.keys() - before, 60, lambda: str(chaos.keys() - before))
