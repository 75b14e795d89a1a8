"""Wires to Redis that are cut, stopped up, or lose a reply to what was carried out."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.chaos.callers import BROKEN, JSONL, RAW, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.crowd import BY_ID, DROP, FRAMES, STAY, Crowd
from tests.chaos.site import AUDIBLE_AGAIN_S
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

LONG = 60
KEPT = {"PSIONIC_CSM_RESULT_TTL_MS": "60000", "PSIONIC_CSM_METADATA_TTL_MS": "60000"}


@pytest.mark.parametrize("how", ["cut", "stopped_up"])
async def test_a_worker_that_redis_cannot_hear(open_site: OpenSite, how: str) -> None:
    """It speaks on into its buffer while another takes its jobs over; reconnected, not a word of it
    is written, and it serves on.
    """
    async with open_site(**KEPT) as site:
        wire, url = await site.wire()
        site.scheduler()
        site.gateway()
        lonely = site.worker(PSIONIC_CSM_REDIS_URL=url)
        site.worker()
        await site.ready()
        heard = [Heard(f"r{number}") for number in range(8)]
        answers = [
            site.callers.speaking(site.url, LONG, stream=JSONL, heard=each) for each in heard
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        if how == "cut":
            wire.cut()
        else:
            wire.stop_up()
        await asyncio.gather(*answers)
        written = [site.events_of(each.request_id) for each in heard]
        wire.mend()
        await until(lambda: lonely.said.count("lease_lost") == 4)
        await site.settled()

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(LONG) for each in heard} == {True}
        assert max(each.gap_s for each in heard) < AUDIBLE_AGAIN_S
        assert written == [site.events_of(each.request_id) for each in heard]
        assert lonely.pid in site.ready_workers()


async def test_replies_that_are_lost(open_site: OpenSite) -> None:
    """Redis did it and nobody heard so: what is asked again is done once. Every whole answer is
    right, every other is a refusal for that reason, and nothing is left.
    """
    async with open_site() as site:
        wire, url = await site.wire()
        site.scheduler()
        site.gateway(PSIONIC_CSM_REDIS_URL=url)
        for _ in range(2):
            site.worker(lanes=8, step_ms=20, PSIONIC_CSM_REDIS_URL=url)
        await site.ready()
        before = await site.baseline()
        crowd = Crowd(site, seed=5)
        wire.lossy = 0.01
        ways = (STAY, STAY, DROP, BY_ID)

        async def caller(number: int) -> Heard | None:
            await asyncio.sleep(8 * crowd.dice.random())
            return await crowd.call(number, crowd.dice.choice(ways))

        answers = await asyncio.gather(*(caller(number) for number in range(160)))
        wire.lossy = 0.0

        heard = [answer for answer in answers if answer is not None]
        whole = [each for each in heard if each.code is None]
        assert wire.lost > 20
        assert crowd.late == []
        assert {each.code for each in heard} <= {None, "cancelled", "queue_unavailable"}
        assert {each.pcm == each.undisturbed(FRAMES) for each in whole} == {True}
        assert len(whole) > 0.8 * sum(each.code != "cancelled" for each in heard)
        await site.settled()
        await site.back_to(before)


async def test_connections_that_are_reset_under_load(open_site: OpenSite) -> None:
    """All of them at once, again and again, idle or in the midst of a reply: nearly everybody hears
    the whole answer, all others a refusal, and whoever is told to stop afterwards stops in time.
    """
    async with open_site() as site:
        wire, url = await site.wire()
        site.scheduler()
        for _ in range(2):
            site.gateway(PSIONIC_CSM_REDIS_URL=url)
            site.worker(lanes=8, step_ms=20, PSIONIC_CSM_REDIS_URL=url)
        await site.ready()
        dice = random.Random(7)

        async def caller() -> Heard:
            await asyncio.sleep(4 * dice.random())
            stream = dice.choice((None, JSONL, RAW))
            return await site.callers.speak(dice.choice(site.urls), FRAMES, stream=stream)

        callers = asyncio.gather(*(caller() for _ in range(80)))
        resets = 0
        while not callers.done():
            await asyncio.sleep(0.5 * dice.random())
            wire.reset()
            resets += 1
        heard = await callers

        whole = [each for each in heard if each.code is None]
        assert resets > 8
        assert {each.status for each in heard} <= {200, 429, 503}
        assert {each.code for each in heard if each.status == 200} <= {
            None,
            "queue_unavailable",
            BROKEN,
        }
        assert {each.pcm == each.undisturbed(FRAMES) for each in whole} == {True}
        assert {each.undisturbed(FRAMES).startswith(each.pcm) for each in heard} == {True}
        assert len(whole) > 0.8 * len(heard)
        await site.settled()
        for process in site.processes:
            process.terminate()
        assert {await process.ended() for process in site.processes} == {0}
        assert not any("Traceback" in process.said for process in site.processes)
