"""From POST to claim on an idle worker, and what a look at the books takes."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from redis import Redis

from benchmarks.client import Caller, Reply
from benchmarks.target import Target
from gateway.auth import OPEN
from shared.paths import SPEECH
from shared.wav import FRAME_MS

REST_S = (0.02, 0.3)
"""An idle worker is met at any point of its loop, so callers come at random moments."""
SETTLE_S = 30.0


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


class NotServed(Exception):
    """A request that a benchmark depends on was not answered as it has to be."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}, code {reply.code}")


async def spoken(caller: Caller, request_id: str, frames: int = 1, **more: Any) -> Reply:
    """Ask for so many frames under this id."""
    body = {"input": "Hi", "request_id": request_id, "max_audio_length_ms": frames * FRAME_MS}
    return await caller.post(SPEECH, {**body, "timeout_ms": 30_000, **more})


def claimed_ms(target: Target, redis: Redis, request_id: str) -> int:
    """When an answered request was first claimed, on Redis's clock."""
    job: Any = redis.get(target.keys.request(OPEN, request_id))
    entries: Any = redis.xrange(target.keys.events(job.decode()), count=1)
    return int(entries[0][0].split(b"-")[0])


async def idle(target: Target, redis: Redis) -> None:
    """Nothing waits and nothing runs."""
    await depth_is(target, redis, waiting=0, running=0)


async def depth_is(
    target: Target, redis: Redis, *, waiting: int | None = None, running: int | None = None
) -> None:
    """So many wait and run. Raises TimeoutError."""
    keys = target.keys
    async with asyncio.timeout(SETTLE_S):
        while True:
            now = redis.zcard(keys.waiting(target.queue)), redis.zcard(keys.running(target.queue))
            if waiting in (None, now[0]) and running in (None, now[1]):
                return
            await asyncio.sleep(0.002)
