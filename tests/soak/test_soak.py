"""A long run with everything that goes wrong at once: memory and keys stay as they were.

    SOAK_REQUESTS=20000 make soak

Each long-lived process is measured after a warm-up of the same kind as the run, and again when all
is quiet at its end. What is killed and started again on the way has no past to be compared with.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from itertools import count

import psutil
import pytest

from tests.chaos.callers import BROKEN, Heard
from tests.chaos.conftest import Answer, Chaos, OpenSite
from tests.chaos.crowd import BY_ID, BY_TURN, DROP, FRAMES, STAY, Crowd
from tests.chaos.process import Process
from tests.chaos.site import Site
from tests.conftest import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(24 * 3600)]

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "1000"))
REAL_REQUESTS = max(60, REQUESTS // 10)
"""The share that the real engine speaks."""
AT_ONCE = 32
WARM_UP = 300
GROWTH = 12 << 20
"""Bytes that a process may have grown by at the end, however long the run was."""
WAYS = (STAY, STAY, STAY, DROP, BY_ID, BY_TURN)
REFUSED = {"queue_full", "deadline_unmeetable", "too_many_waiting", "queue_unavailable"}
ALLOWED = {None, "cancelled", "csm_synthesis_failed", "worker_lost", BROKEN, *REFUSED}


class Weather:
    """Kills, stalls, drains and outages, one after the other, until the run is over.

    The first gateway and the first worker are spared: they are the ones whose memory is watched.
    """

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.dice = random.Random(seed)
        self.struck: list[str] = []

    async def blow(self, over: asyncio.Event) -> None:
        strikes = {
            "worker killed": self._kill_worker,
            "worker drained": self._drain_worker,
            "worker stalled": self._stall_worker,
            "gateway killed": self._kill_gateway,
            "redis stalled": self._stall_redis,
            "scheduler killed": self._kill_scheduler,
        }
        while not over.is_set():
            name = self.dice.choice(list(strikes))
            self.struck.append(name)
            await strikes[name]()
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 1.0)

    def _victim(self) -> Process:
        return self.dice.choice(self.site.living("worker")[1:])

    async def _kill_worker(self) -> None:
        self._victim().kill()
        self._add_worker()

    async def _drain_worker(self) -> None:
        victim = self._victim()
        self._add_worker()
        victim.terminate()
        assert await victim.ended() == 0

    async def _stall_worker(self) -> None:
        victim = self._victim()
        victim.stop()
        await asyncio.sleep(4)
        victim.go_on()

    async def _kill_gateway(self) -> None:
        self.site.living("gateway")[1].kill()
        self.site.urls.pop()
        self.site.gateway()
        await self.site.serving(self.site.urls[-1])

    async def _kill_scheduler(self) -> None:
        self.site.living("scheduler")[0].kill()
        self.site.scheduler()

    async def _stall_redis(self) -> None:
        redis = psutil.Process(self.site.server.pid)
        redis.suspend()
        await asyncio.sleep(1.0)
        redis.resume()

    def _add_worker(self) -> None:
        self.site.worker(lanes=8, step_ms=20)


async def crowd_of(crowd: Crowd, numbers: count[int], total: int) -> list[Heard]:
    """So many callers, ``AT_ONCE`` of them at a time."""
    heard: list[Heard] = []
    left = iter(range(total))

    async def caller() -> None:
        for _ in left:
            more = {"input": "Hello. [nonfinite 12]"} if crowd.dice.random() < 0.03 else {}
            answer = await crowd.call(next(numbers), crowd.dice.choice(WAYS), **more)
            if answer is not None:
                heard.append(answer)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return heard


def memory(site: Site) -> dict[str, int]:
    """Resident bytes of the processes that live from beginning to end, and what Redis holds."""
    return {
        "gateway": site.living("gateway")[0].rss,
        "worker": site.living("worker")[0].rss,
        "redis": psutil.Process(site.server.pid).memory_info().rss,
    }


async def test_memory_and_keys_stay_flat_through_all_of_it(open_site: OpenSite) -> None:
    """Cancels, departures, failures, kills, stalls, drains: every whole answer is right to the bit,
    every other has a code, no process has grown, and no key is left.
    """
    async with open_site() as site:
        site.scheduler()
        for _ in range(2):
            site.gateway()
        for _ in range(3):
            site.worker(lanes=8, step_ms=20)
        await site.ready()
        crowd, numbers, weather = Crowd(site, seed=5), count(), Weather(site, seed=5)
        await crowd_of(crowd, numbers, WARM_UP)
        keys, resident = await site.baseline(), memory(site)
        over = asyncio.Event()
        blowing = asyncio.create_task(weather.blow(over))

        heard = await crowd_of(crowd, numbers, REQUESTS)
        over.set()
        await blowing

        whole = [each for each in heard if each.code is None]
        assert crowd.late == []
        assert crowd.judged > len(heard) / 20
        assert {each.code for each in heard} <= ALLOWED
        assert {each.pcm == each.undisturbed(FRAMES) for each in whole} == {True}
        assert len(whole) > len(heard) / 4
        await site.settled()
        await site.back_to(keys)
        grown = {name: now - resident[name] for name, now in memory(site).items()}
        assert max(grown.values()) < GROWTH, grown


async def test_the_real_engine_stays_flat(chaos: Chaos) -> None:
    """The same with a model that computes: one of two workers is killed again and again, the other
    lives through it and has not grown.
    """
    dice = random.Random(5)
    spared, _ = chaos.pids("gpu_worker")
    expected = (await chaos.speak()).digest

    async def crowd(total: int, first: int) -> list[Answer]:
        answers: list[Answer] = []
        left = iter(range(first, first + total))

        async def caller() -> None:
            for number in left:
                speaking = asyncio.create_task(chaos.speak(f"soak-{number}"))
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.random())
                    speaking.cancel()
                    await asyncio.gather(speaking, return_exceptions=True)
                else:
                    answers.append(await speaking)

        await asyncio.gather(*(caller() for _ in range(6)))
        return answers

    await crowd(40, 0)
    await chaos.settled()
    processes = {"worker": psutil.Process(spared)}
    processes["gateway"] = psutil.Process(chaos.pids("gateway")[0])
    resident = {name: process.memory_info().rss for name, process in processes.items()}
    over = asyncio.Event()

    async def kill_the_other() -> None:
        while not over.is_set():
            await until(lambda: len(chaos.pids("gpu_worker")) == 2, 60)
            os.kill(max(set(chaos.pids("gpu_worker")) - {spared}), 9)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 8)

    killing = asyncio.create_task(kill_the_other())
    answers = await crowd(REAL_REQUESTS, 1000)
    over.set()
    await killing

    assert {answer.digest for answer in answers if answer.status == 200} == {expected}
    assert {answer.code for answer in answers} <= {None, "worker_lost", *REFUSED}
    assert sum(answer.status == 200 for answer in answers) > len(answers) / 2
    await chaos.settled()
    grown = {name: p.memory_info().rss - resident[name] for name, p in processes.items()}
    assert max(grown.values()) < 4 * GROWTH, grown
