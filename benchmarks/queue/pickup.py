"""From POST to claim on an idle worker."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from redis import Redis

from benchmarks.client import Caller
from benchmarks.queue.asking import NotServed, claimed_ms, idle, spoken
from benchmarks.target import Target

REST_S: Final = (0.02, 0.3)
"""An idle worker is met at any point of its loop, so callers come at random moments."""


async def pickup(target: Target, redis: Redis, count: int) -> list[float]:
    """Milliseconds from sending to the claim, for callers that come one at a time.

    The claim's moment is its entry's in the job's stream, on Redis's clock, which is this
    machine's. It counts whole milliseconds, so up to one is counted too many and none too few.
    """
    samples = []
    chance = random.Random(1)
    async with Caller(target.url) as caller:
        await spoken(caller, "warm-up")
        for number in range(count):
            await idle(target, redis)
            await asyncio.sleep(chance.uniform(*REST_S))
            sent_ms = time.time() * 1000
            reply = await spoken(caller, f"pickup-{number}")
            if reply.status != 200:
                raise NotServed(reply)
            samples.append(claimed_ms(target, redis, f"pickup-{number}") + 1 - sent_ms)
    return samples
