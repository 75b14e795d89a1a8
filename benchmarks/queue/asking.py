"""How the queue's benchmarks ask for speech, and wait until the books stand as they have to."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from redis import Redis

from benchmarks.client import Caller, Reply
from benchmarks.target import Target
from gateway.auth import OPEN
from scheduler.events import written_ms
from shared.paths import SPEECH
from shared.wav import FRAME_MS

SETTLE_S: Final = 30.0
LOOK_EVERY_S: Final = 0.002


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
    return written_ms(entries[0][0])


async def idle(target: Target, redis: Redis) -> None:
    """Until nothing waits and nothing runs. Raises TimeoutError."""
    await depth_is(target, redis, waiting=0, running=0)


async def depth_is(
    target: Target, redis: Redis, *, waiting: int | None = None, running: int | None = None
) -> None:
    """Until so many wait and run; None: whatever the number. Raises TimeoutError."""
    keys = target.keys
    async with asyncio.timeout(SETTLE_S):
        while True:
            now = redis.zcard(keys.waiting(target.queue)), redis.zcard(keys.running(target.queue))
            if waiting in (None, now[0]) and running in (None, now[1]):
                return
            await asyncio.sleep(LOOK_EVERY_S)
