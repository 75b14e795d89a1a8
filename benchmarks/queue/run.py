"""One run: everything that ``psionic-csm bench queue`` says, measured on one screen.

Each part has a stack of its own, so that nothing measured before weighs on it.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from redis import Redis

from benchmarks import machine
from benchmarks.queue.bounds import judge
from benchmarks.queue.cancels import cancels
from benchmarks.queue.costs import costs
from benchmarks.queue.door import door
from benchmarks.queue.door import plan as door_plan
from benchmarks.queue.model import FRAMES
from benchmarks.queue.pickup import pickup
from benchmarks.queue.records import Host, QueueReport, Tail
from benchmarks.queue.rivals import compare
from benchmarks.target import PacedPlan, Start
from shared.cores import usable_cores

AT_ONCE: Final = 8
CROWD_LANES: Final = 8

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything: calls, cancels, requests at the door, streams, seconds, jobs."""

    pickups: int = 200
    cancels: int = 20
    admissions: int = 800
    refusals: int = 4000
    streams: int = 64
    seconds: float = 12.0
    jobs: int = 400
    rounds: int = 6
    crowd: int = 100


def run(plan: Plan, start: Start, say: Say) -> QueueReport:
    """Measure it all."""
    began, load_before = time.monotonic(), machine.load_average()
    say("an idle worker: calls, then cancels")
    with start(PacedPlan(lanes=1)) as target, Redis.from_url(target.redis_url) as redis:
        picked_up = asyncio.run(pickup(target, redis, plan.pickups))
        cancelled = asyncio.run(cancels(target, redis, plan.cancels))
    say("one gateway's door")
    with start(door_plan(plan.admissions)) as target, Redis.from_url(target.redis_url) as redis:
        passed = asyncio.run(door(target, redis, plan.admissions, plan.refusals))
    say(f"{plan.streams} streams, then jobs")
    streaming = PacedPlan(lanes=plan.streams)
    with start(streaming) as target, Redis.from_url(target.redis_url) as redis:
        kept = asyncio.run(costs(target, redis, plan.streams, plan.seconds, plan.jobs))
    say("the same model, served by others")
    instant = PacedPlan(lanes=CROWD_LANES, step_ms=0)
    with start(instant) as target, Redis.from_url(target.redis_url) as redis:
        server = described(redis)
        servers, notes = compare(target, redis, rounds=plan.rounds, jobs=plan.jobs, at_once=AT_ONCE)
    report = QueueReport(
        host=host(load_before, server),
        pickup_ms=Tail.of(picked_up),
        cancel_frames=Tail.of(cancelled),
        door=passed,
        costs=kept,
        frames_per_job=FRAMES,
        at_once=AT_ONCE,
        servers=servers,
        seconds=time.monotonic() - began,
        bounds=(),
        notes=notes,
    )
    return replace(report, bounds=judge(report))


def described(redis: Redis) -> str:
    """A Redis in words."""
    info: Any = redis.info()
    log = "on" if info["aof_enabled"] else "off"
    return f"Redis {info['redis_version']} ({info['mem_allocator']}), append-only file {log}"


def host(load_before: float, redis: str) -> Host:
    return Host(
        processor=machine.processor(),
        cores=usable_cores(),
        python=platform.python_version(),
        redis=redis,
        load_average_before=load_before,
        load_average_after=machine.load_average(),
    )
