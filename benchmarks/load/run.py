"""One run: everything that ``psionic-csm bench load`` says, measured on one screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import uvloop
from redis import Redis

from benchmarks import machine
from benchmarks.books import check
from benchmarks.client import Caller
from benchmarks.load.arrivals import Mix, schedule
from benchmarks.load.bounds import judge
from benchmarks.load.drive import drive
from benchmarks.load.estimate import judge_estimate, judge_refusals
from benchmarks.load.model import replay
from benchmarks.load.records import LoadReport, Phase, Process
from benchmarks.load.watch import Watch
from benchmarks.processes import ProcessorTime
from benchmarks.queue.records import Tail
from benchmarks.queue.run import described, host
from benchmarks.target import PacedPlan, Target
from shared.paths import LOAD
from shared.settings import QueueSettings
from shared.wav import FRAME_MS

SETTLE_S: Final = 30.0
UNCHECKED: Final = (
    "the books were not checked: only HTTP reaches them here (psionic-csm bench check does it)"
)

UNSEEN: Final = "Redis not seen from here"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """``load`` is what is sent over what the lanes can speak; with ``overload``, first as much as
    they can, then so many times that. ``rate`` in calls a second takes the place of ``load``."""

    seconds: float
    load: float
    overload: float | None
    rate: float | None
    mix: Mix
    mix_text: str
    timeouts_s: tuple[float, ...]
    seed: int = 1

    @property
    def phases(self) -> tuple[tuple[str, float], ...]:
        if self.overload is None:
            return (("steady", self.load),)
        return (("at capacity", 1.0), ("overload", self.overload))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the load goes. Without ``target`` only HTTP reaches it, and some is not known."""

    url: str
    lanes: int
    step_s: float
    api_key: str | None = None
    target: Target | None = None
    depth_bound: int | None = None


def own_place(plan: PacedPlan, target: Target) -> Place:
    """A stack of this run's own, under the settings that it was started with."""
    lanes, queue = plan.workers * plan.lanes, QueueSettings.from_env(plan.settings)
    bound = max(queue.min_queue_depth, queue.queue_depth_per_lane * lanes)
    return Place(
        url=target.url,
        lanes=lanes,
        step_s=plan.step_ms / 1000,
        target=target,
        depth_bound=min(bound, queue.max_queue_depth),
    )


async def _published_lanes(url: str, api_key: str | None) -> int:
    async with Caller(url, api_key) as caller:
        reply = await caller.get(LOAD)
        said: Any = reply.json() if reply.status == 200 else {}
        return int(said.get("capacity_lanes") or 0)


def foreign_place(url: str, api_key: str | None) -> Place:
    """A gateway that runs somewhere. Its lanes are as published; 0 when it serves nothing."""
    lanes = asyncio.run(_published_lanes(url, api_key))
    return Place(url, lanes, FRAME_MS / 1000, api_key)


def run(plan: Plan, place: Place, say: Say) -> LoadReport:
    """Load it, then look at the books."""
    began, load_before = time.monotonic(), machine.load_average()
    redis = Redis.from_url(place.target.redis_url) if place.target else None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            phases = tuple(
                runner.run(_phase(plan, place, number, redis, say))
                for number in range(len(plan.phases))
            )
        say("the books")
        balance = _balance(place.target, redis)
        server = UNSEEN if redis is None else described(redis)
    finally:
        if redis is not None:
            redis.close()
    report = LoadReport(
        host=host(load_before, server),
        url=place.url,
        lanes=place.lanes,
        step_s=place.step_s,
        depth_bound=place.depth_bound,
        mix=plan.mix_text,
        timeouts_s=plan.timeouts_s,
        phases=phases,
        balance=balance,
        seconds=time.monotonic() - began,
        bounds=(),
        notes=() if balance is not None else (UNCHECKED,),
    )
    return replace(report, bounds=judge(report))


async def _phase(plan: Plan, place: Place, number: int, redis: Redis | None, say: Say) -> Phase:
    name, load = plan.phases[number]
    capacity = place.lanes / (plan.mix.mean_frames * place.step_s)
    rate = plan.rate if plan.rate is not None and plan.overload is None else load * capacity
    say(f"{name}: {rate:.1f} calls a second for {plan.seconds:.0f} s")
    arrivals = schedule(rate, plan.seconds, plan.mix, plan.timeouts_s, plan.seed + number)
    label = f"{plan.seed}-{int(time.time())}-{number}"
    async with Caller(place.url, place.api_key) as caller:
        began = time.perf_counter()
        watch = Watch(caller, began, _depth(place.target, redis))
        clock = ProcessorTime(place.target.pids if place.target else {})
        with watch.looking():
            calls, gaps_s = await drive(caller, arrivals, label, began)
        clock.stop()
        lasted_s = time.perf_counter() - began
    replayed = replay(calls, place.lanes)
    return Phase(
        name=name,
        load=rate / capacity,
        rate=rate,
        seconds=plan.seconds,
        warm_up_s=min(plan.seconds / 3, 1.5 * max(plan.mix.frames) * place.step_s),
        calls=calls,
        samples=tuple(watch.samples),
        gaps_s=Tail.of(gaps_s) if gaps_s else None,
        health_s=Tail.of(watch.health_s) if watch.health_s else None,
        most_depth=watch.most_depth,
        estimate=judge_estimate(calls, watch.samples, replayed),
        refused=judge_refusals(replayed),
        processes=tuple(
            Process(name, used / lasted_s, clock.waited[name] / lasted_s)
            for name, used in clock.used.items()
        ),
    )


def _depth(target: Target | None, redis: Redis | None) -> Callable[[], int] | None:
    if target is None or redis is None:
        return None
    waiting, known = target.keys.waiting(target.queue), redis
    return lambda: int(known.zcard(waiting))


def _balance(target: Target | None, redis: Redis | None) -> tuple[str, ...] | None:
    if target is None or redis is None:
        return None
    verdict = check(redis, target.namespace, SETTLE_S)
    left = () if verdict.books.idle else ("jobs are left",)
    return (*verdict.faults, *verdict.differences, *left)
