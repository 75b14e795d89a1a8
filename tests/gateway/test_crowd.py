"""A crowd of requests leaves room for everything else."""

from __future__ import annotations

import asyncio
import time

from tests.gateway.world import World

CROWD = 300
MOST_S = 0.035
"""All that may come in between costs this much of the process's own time, whoever else runs; a
crowd that were let in together costs twice as much."""


async def test_whoever_asks_how_things_stand_is_answered_between_a_crowd(world: World) -> None:
    """Hundreds of requests at the same moment are checked and admitted a few at a time."""
    await world.get("/health")
    crowd = [world.post({"input": "Hello.", "timeout_ms": 30_000}) for _ in range(CROWD)]
    await asyncio.sleep(0)  # all of them have arrived

    asked_at = time.thread_time()
    health = await world.get("/health")
    took_s = time.thread_time() - asked_at

    assert health.status == 200
    assert took_s < MOST_S
    assert sum(call.task.done() for call in crowd) < CROWD // 2
