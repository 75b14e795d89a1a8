"""What a frame and a job cost Redis, and the processes beside it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Self

from redis import Redis

from benchmarks.client import Caller
from benchmarks.processes import ProcessorTime
from benchmarks.queue.asking import NotServed, depth_is, idle, spoken
from benchmarks.queue.records import Cost, Costs
from benchmarks.target import Target
from shared.wav import FRAME_MS

MOST_FRAMES: Final = 250
"""The longest job that a gateway takes, 20 s."""
SETTLING_S: Final = 4.0
"""Of a stream's length, what is left for its start and its end."""
JOBS_AT_ONCE: Final = 4
SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used in ``seconds``; also a rate, and what is left of one after another."""

    seconds: float
    commands: float
    in_bytes: float
    out_bytes: float
    redis_cpu_s: float
    gateway_cpu_s: float
    worker_cpu_s: float
    calls: Counter[str]

    def beyond(self, idle: Usage) -> Usage:
        """Without what an idle stack would have used in the same time."""
        share = self.seconds / idle.seconds
        return self.less(idle, share)

    def less(self, other: Usage, share: float) -> Usage:
        calls = {name: self.calls[name] - share * other.calls[name] for name in self.calls}
        return Usage(
            self.seconds,
            self.commands - share * other.commands,
            self.in_bytes - share * other.in_bytes,
            self.out_bytes - share * other.out_bytes,
            self.redis_cpu_s - share * other.redis_cpu_s,
            self.gateway_cpu_s - share * other.gateway_cpu_s,
            self.worker_cpu_s - share * other.worker_cpu_s,
            Counter(calls),
        )

    def per(self, count: int) -> Cost:
        most = self.calls.most_common(SHOWN)
        return Cost(
            count=count,
            commands=self.commands / count,
            in_bytes=self.in_bytes / count,
            out_bytes=self.out_bytes / count,
            redis_cpu_s=self.redis_cpu_s / count,
            gateway_cpu_s=self.gateway_cpu_s / count,
            worker_cpu_s=self.worker_cpu_s / count,
            calls=tuple((name, calls / count) for name, calls in most if calls / count >= 0.005),
        )


class Meter:
    """Reads Redis's own counts and the processes' time, before and after."""

    def __init__(self, target: Target, redis: Redis) -> None:
        self._redis = redis
        self._clock = ProcessorTime(target.pids)

    def start(self) -> Self:
        self._clock.start()
        self._before, self._began = _counts(self._redis), time.perf_counter()
        return self

    def stop(self) -> Usage:
        seconds, after = time.perf_counter() - self._began, _counts(self._redis)
        self._clock.stop()
        used = after - self._before  # drops what did not grow
        calls = {name.removeprefix("cmdstat_"): n for name, n in used.items() if "cmdstat" in name}
        return Usage(
            seconds=seconds,
            commands=sum(calls.values()),
            in_bytes=used["in"],
            out_bytes=used["out"],
            redis_cpu_s=used["cpu_us"] / 1e6,
            gateway_cpu_s=self._clock.of("gateway"),
            worker_cpu_s=self._clock.of("worker"),
            calls=Counter(calls),
        )


def _counts(redis: Redis) -> Counter[str]:
    info: Any = redis.info("everything")
    calls = {name: found["calls"] for name, found in info.items() if name.startswith("cmdstat_")}
    cpu_s = info["used_cpu_user"] + info["used_cpu_sys"]
    return Counter(
        {
            **calls,
            "in": info["total_net_input_bytes"],
            "out": info["total_net_output_bytes"],
            "cpu_us": round(cpu_s * 1e6),
        }
    )


async def costs(target: Target, redis: Redis, streams: int, seconds: float, jobs: int) -> Costs:
    """Measure an idle stack, then streams that all speak, then jobs of one frame each."""
    meter = Meter(target, redis)
    async with Caller(target.url) as caller:
        await spoken(caller, "warm-up")
        await idle(target, redis)
        meter.start()
        await asyncio.sleep(max(2.0, seconds / 3))
        resting = meter.stop()
        spoken_frames, streaming = await _stream(target, redis, meter, streams, seconds)
        frame = streaming.beyond(resting)
        await idle(target, redis)
        meter.start()
        await _jobs(caller, jobs)
        await idle(target, redis)
        job = meter.stop().beyond(resting).less(frame, jobs / spoken_frames)
    return Costs(streams, frame.per(spoken_frames), job.per(jobs))


async def _stream(
    target: Target, redis: Redis, meter: Meter, streams: int, seconds: float
) -> tuple[int, Usage]:
    """So many streams are heard at once: the frames of all, and what was used meanwhile."""
    heard = min(seconds, (MOST_FRAMES * FRAME_MS) / 1000 - SETTLING_S)
    async with Caller(target.url) as caller:
        streaming = [
            asyncio.create_task(
                spoken(caller, f"stream-{number}", MOST_FRAMES, stream=True, stream_format="audio")
            )
            for number in range(streams)
        ]
        try:
            await depth_is(target, redis, running=streams)
            await asyncio.sleep(SETTLING_S / 4)
            before = _frames(target, redis)
            meter.start()
            await asyncio.sleep(heard)
            used = meter.stop()
            frames = _frames(target, redis) - before
        finally:
            for each in streaming:
                each.cancel()
            await asyncio.gather(*streaming, return_exceptions=True)
    return frames, used


def _frames(target: Target, redis: Redis) -> int:
    """Frames so far of all that run."""
    jobs: Any = redis.zrange(target.keys.running(target.queue), 0, -1)
    with redis.pipeline() as pipe:
        for job in jobs:
            pipe.hget(target.keys.job(job.decode()), "frames")
        return sum(int(frames) for frames in pipe.execute())


async def _jobs(caller: Caller, jobs: int) -> None:
    numbers = iter(range(jobs))

    async def one_after_another() -> None:
        for number in numbers:
            reply = await spoken(caller, f"job-{number}")
            if reply.status != 200:
                raise NotServed(reply)

    await asyncio.gather(*(one_after_another() for _ in range(JOBS_AT_ONCE)))
