"""From a cancel to the lane's next claim, with one lane and somebody waiting for it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from redis import Redis

from benchmarks.client import Caller
from benchmarks.queue.asking import claimed_ms, depth_is, idle, spoken
from benchmarks.target import Target
from shared.paths import CANCELLATIONS
from shared.wav import FRAME_MS

LONG_FRAMES: Final = 100


async def cancels(target: Target, redis: Redis, count: int) -> list[float]:
    """Frames from sending the cancel until the next in line was claimed for the lane.

    What a claim takes by itself is counted in.
    """
    samples = []
    chance = random.Random(2)
    async with Caller(target.url) as caller:
        for number in range(count):
            await idle(target, redis)
            first, second = f"cancel-{number}", f"next-{number}"
            speaking = asyncio.create_task(spoken(caller, first, LONG_FRAMES))
            await depth_is(target, redis, running=1)
            waiting = asyncio.create_task(spoken(caller, second))
            await depth_is(target, redis, waiting=1)
            await asyncio.sleep(3 * FRAME_MS / 1000 + chance.uniform(0, FRAME_MS / 1000))
            sent_ms = time.time() * 1000
            await caller.post(CANCELLATIONS, {"request_id": first})
            await asyncio.gather(speaking, waiting)
            samples.append((claimed_ms(target, redis, second) + 1 - sent_ms) / FRAME_MS)
    return samples
