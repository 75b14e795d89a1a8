"""Admissions and refusals per second of a gateway's processor.

The one lane is busy throughout, so an admission is what it takes to let a caller in and let it
wait, and none of its answer. Those who wait stay while refusals are measured.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from redis import Redis

from benchmarks.client import Caller, Reply
from benchmarks.processes import ProcessorTime
from benchmarks.queue.asking import NotServed, depth_is, spoken
from benchmarks.queue.records import Door
from benchmarks.target import PacedPlan, Target
from shared.paths import SPEECH
from shared.variables import (
    DRAIN_GRACE_MS,
    MAX_QUEUE_DEPTH,
    MAX_WAITING_PER_PRINCIPAL,
    MIN_QUEUE_DEPTH,
)

AT_THE_DOOR: Final = 16
"""Callers who are not inside yet, at most: a crowd is another measurement."""
REFUSED_AT_ONCE: Final = 8
BODY: Final[dict[str, Any]] = {
    "input": "How the door is measured.",
    "max_audio_length_ms": 2400,
    "timeout_ms": 30_000,
    "stream": True,
    "stream_format": "jsonl_base64",
}


def plan(admissions: int) -> PacedPlan:
    """One lane that never ends what it has begun, and room for so many in line."""
    room = str(admissions)
    settings = {
        MIN_QUEUE_DEPTH: room,
        MAX_QUEUE_DEPTH: room,
        MAX_WAITING_PER_PRINCIPAL: str(2 * admissions),
        DRAIN_GRACE_MS: "0",
    }
    return PacedPlan(lanes=1, step_ms=20_000, settings=settings)


async def door(target: Target, redis: Redis, admissions: int, refusals: int) -> Door:
    """Fill the queue to its bound, then knock."""
    clock = ProcessorTime({"gateway": target.pids["gateway"]})
    async with Caller(target.url) as caller:
        inside = [asyncio.create_task(spoken(caller, "occupant", 100))]
        try:
            await depth_is(target, redis, running=1)
            clock.start()
            await _fill(target, redis, caller, inside, admissions)
            admission_s = clock.stop().total
            clock.start()
            await _knock(caller, refusals)
            refusal_s = clock.stop().total
        finally:
            for each in inside:
                each.cancel()
            await asyncio.gather(*inside, return_exceptions=True)
    return Door(admissions, admission_s, refusals, refusal_s, admissions)


async def _fill(
    target: Target,
    redis: Redis,
    caller: Caller,
    inside: list[asyncio.Task[Reply]],
    admissions: int,
) -> None:
    waiting = target.keys.waiting(target.queue)
    sent = 0
    async with asyncio.timeout(60):
        while (depth := int(redis.zcard(waiting))) < admissions:
            for task in inside:
                if task.done():
                    raise NotServed(task.result())
            for number in range(sent, min(admissions, depth + AT_THE_DOOR)):
                body = {**BODY, "request_id": f"door-{number}"}
                inside.append(asyncio.create_task(caller.post(SPEECH, body)))
                sent = number + 1
            await asyncio.sleep(0.002)


async def _knock(caller: Caller, refusals: int) -> None:
    numbers = iter(range(refusals))

    async def knock() -> None:
        for number in numbers:
            reply = await caller.post(SPEECH, {**BODY, "request_id": f"refused-{number}"})
            if reply.code != "queue_full":
                raise NotServed(reply)

    await asyncio.gather(*(knock() for _ in range(REFUSED_AT_ONCE)))
