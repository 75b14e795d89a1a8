"""Crowds: a thousand requests cancelled at random moments, and four times what can be spoken."""

from __future__ import annotations

import asyncio
import json
import random
import time
from statistics import median, quantiles

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.crowd import FRAMES as CROWD_FRAMES
from tests.chaos.crowd import WAYS, Crowd

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

OVERLOADED = {"queue_full", "deadline_unmeetable", "too_many_waiting"}
STORM = 1000
STORM_S = 15.0


async def test_a_storm_of_cancels_and_departures_leaves_nothing(open_site: OpenSite) -> None:
    """By id, by turn, by disconnect: no lane, listener or key is left, no audio comes after."""
    async with open_site(PSIONIC_CSM_CANCEL_MEMORY_MS="6000") as site:
        site.scheduler()
        for _ in range(2):
            site.gateway()
            site.worker(lanes=16, step_ms=20)
        await site.ready()
        before = await site.baseline()
        crowd = Crowd(site, seed=5)

        async def caller(number: int) -> Heard | None:
            await asyncio.sleep(STORM_S * crowd.dice.random())
            return await crowd.call(number, crowd.dice.choice(WAYS))

        answers = await asyncio.gather(*(caller(number) for number in range(STORM)))

        heard = [answer for answer in answers if answer is not None]
        whole = [each for each in heard if each.code is None]
        assert crowd.late == []
        assert crowd.judged > 0  # on a machine with much else to do, few are in time for it
        assert {each.code for each in heard} <= {None, "cancelled", *OVERLOADED}
        assert {each.pcm == each.undisturbed(CROWD_FRAMES) for each in whole} == {True}
        assert len(whole) > STORM / 100
        assert sum(each.code == "cancelled" for each in heard) > STORM / 100
        await site.settled()
        await site.back_to(before)


LANES, STEP_MS, FRAMES = 8, 40, 25
OVERLOAD_S = 16.0
CAPACITY_PER_S = LANES / (FRAMES * STEP_MS / 1000)


async def test_four_times_the_capacity(open_site: OpenSite) -> None:
    """Only 200, 429 and 503; the queue within its bound; who is let in waits no longer than it."""
    async with open_site() as site:
        site.scheduler()
        gateway = site.gateway()
        site.worker(lanes=LANES, step_ms=STEP_MS)
        await site.ready()
        prober = site.start("prober", "tests.chaos.prober", site.url)
        depths: list[int] = []
        answers: list[asyncio.Task[Heard]] = []
        dice = random.Random(5)
        began = time.monotonic()
        while time.monotonic() - began < OVERLOAD_S:
            answers.append(site.callers.speaking(site.url, FRAMES, stream=JSONL))
            depths += (len(ids) for ids in site.books().waiting.values())
            await asyncio.sleep(dice.expovariate(4 * CAPACITY_PER_S))
        heard = await asyncio.gather(*answers)
        prober.terminate()
        assert await prober.ended() == 0
        health_ms: list[float] = json.loads(prober.said)

        spoken = [each for each in heard if each.status == 200]
        bound = 4 * LANES
        assert {each.status for each in heard} <= {200, 429, 503}
        assert {each.code for each in heard} <= {None, *OVERLOADED}
        assert {each.pcm == each.undisturbed(FRAMES) for each in spoken} == {True}
        assert len(spoken) > 0.5 * CAPACITY_PER_S * OVERLOAD_S
        assert max(depths) <= bound
        assert max(depths) > bound / 2
        longest_s = 2 * bound / CAPACITY_PER_S + 4
        assert max(each.first_s for each in spoken) < longest_s
        assert median(health_ms) < 100
        assert percentile(health_ms, 99) < 1000  # one or another comes when a neighbour computes
        assert gateway.alive


def percentile(values: list[float], which: int) -> float:
    return quantiles(values, n=100)[which - 1]
