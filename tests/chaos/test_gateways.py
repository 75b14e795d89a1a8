"""Gateways that die, drain and share their jobs with others."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.chaos.callers import BROKEN, JSONL, RAW, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import BUSY_S, Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

FRAMES = 40
LONG = 160
LANES_FREE_S = 8.0 + BUSY_S
"""The promise: the listeners' lapse, a reap and two frames."""


async def two_gateways(site: Site, *, step_ms: float = 40) -> None:
    site.scheduler()
    for _ in range(2):
        site.gateway()
    site.worker(step_ms=step_ms)
    await site.ready()


async def test_a_job_goes_on_for_the_other_gateways_listener(open_site: OpenSite) -> None:
    """Two gateways' callers share a job: when one gateway is killed, the other hears all of it."""
    async with open_site() as site:
        await two_gateways(site, step_ms=80)
        heard = [Heard("shared") for _ in site.urls]
        answers = [
            site.callers.speaking(url, LONG, stream=JSONL, heard=each, request_id="shared")
            for url, each in zip(site.urls, heard, strict=True)
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        site.living("gateway")[0].kill()

        await asyncio.gather(*answers)

        assert heard[0].code == BROKEN
        assert (heard[1].code, heard[1].attempt) == (None, 1)
        assert heard[1].pcm == heard[1].undisturbed(LONG)
        assert heard[1].total_s > 10  # past the lapse of the dead one's listener


async def test_the_lanes_of_a_killed_gateway_are_free_soon(open_site: OpenSite) -> None:
    """Nobody is there for its jobs, running or waiting: within 8 s no lane works for them."""
    async with open_site() as site:
        await two_gateways(site, step_ms=80)
        answers = [site.callers.speaking(site.url, 100, stream=RAW) for _ in range(8)]
        await site.running(4)
        await site.waiting(4)
        site.living("gateway")[0].kill()
        killed = time.monotonic()
        await until(lambda: site.books().idle)
        free_s = time.monotonic() - killed
        heard = await asyncio.gather(*answers)

        assert free_s < LANES_FREE_S
        assert {each.code for each in heard} == {BROKEN}
        again = await site.callers.speak(site.urls[1], 10)
        assert again.status == 200


async def test_a_gateway_that_stalls_past_its_callers_lapse(open_site: OpenSite) -> None:
    """Its jobs end, its lanes go to others; awake again, it tells its callers so with a code."""
    async with open_site() as site:
        await two_gateways(site, step_ms=80)
        heard = [Heard(f"r{number}") for number in range(6)]
        answers = [
            site.callers.speaking(site.url, LONG, stream=JSONL, heard=each) for each in heard
        ]
        await until(lambda: sum(each.frames > 5 for each in heard) == 4)
        stalled = site.living("gateway")[0]
        stalled.stop()
        other = await site.callers.speak(site.urls[1], 20)
        await until(lambda: not site.books().live)
        stalled.go_on()
        await asyncio.gather(*answers)

        assert (other.status, other.pcm) == (200, other.undisturbed(20))
        assert {each.code for each in heard} == {"queue_unavailable"}
        assert {each.pcm == each.undisturbed(each.frames) for each in heard} == {True}


async def test_a_gateway_that_is_told_to_stop(open_site: OpenSite) -> None:
    """It lets nobody in, serves those inside to the end, waiting ones too, and exits 0."""
    async with open_site() as site:
        await two_gateways(site)
        heard = [Heard(f"r{number}") for number in range(6)]
        answers = [
            site.callers.speaking(site.url, FRAMES, stream=stream, heard=each)
            for each, stream in zip(heard, [JSONL, RAW, None] * 2, strict=True)
        ]
        await site.waiting(2)
        gateway = site.living("gateway")[0]
        gateway.terminate()
        await site.serving(site.url, False)
        refused = await site.callers.speak(site.url, 10)

        await asyncio.gather(*answers)

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert (refused.status, refused.code) == (503, "draining")
        assert await gateway.ended() == 0


async def test_gateways_replaced_one_by_one(open_site: OpenSite) -> None:
    """Callers who go on to the other gateway when one drains lose nothing."""
    async with open_site() as site:
        await two_gateways(site, step_ms=20)
        stop = asyncio.Event()
        heard: list[Heard] = []

        async def caller(number: int) -> None:
            turn = 0
            while not stop.is_set():
                answer = await site.callers.speak(
                    site.urls[(number + turn) % len(site.urls)], 10, stream=JSONL
                )
                if answer.code == "draining" or answer.status == 0:
                    turn += 1  # as a balancer does with what wasn't taken in
                else:
                    heard.append(answer)

        calling = [asyncio.create_task(caller(number)) for number in range(4)]
        for index in range(2):
            gateway = site.living("gateway")[0]
            gateway.terminate()
            assert await gateway.ended() == 0
            site.gateway()
            site.urls[index] = site.urls.pop()
            await site.serving(site.urls[index])
        stop.set()
        await asyncio.gather(*calling)

        assert len(heard) > 20
        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(10) for each in heard} == {True}


async def test_two_gateways_the_same_id_the_same_moment(open_site: OpenSite) -> None:
    """One generation, and both are answered alike, however the two meet."""
    async with open_site() as site:
        await two_gateways(site, step_ms=10)
        for number in range(20):
            pair = await asyncio.gather(
                *(site.callers.speak(url, 5, request_id=f"twice-{number}") for url in site.urls)
            )
            assert [each.status for each in pair] == [200, 200]
            assert {each.pcm == each.undisturbed(5) for each in pair} == {True}
        (stats,) = site.books().stats.values()

        assert int(stats["admitted"]) == 20


@pytest.mark.parametrize("stream", [None, JSONL])
async def test_a_retry_after_a_broken_connection_speaks(
    open_site: OpenSite, stream: str | None
) -> None:
    """The same id again, at once or later, at either gateway: no echo of one's own leaving."""
    async with open_site() as site:
        await two_gateways(site, step_ms=20)
        for number, pause_s in enumerate((0.0, 0.02, 0.1, 0.5)):
            name = f"again-{number}"
            first = site.callers.speaking(site.urls[0], FRAMES, stream=stream, request_id=name)
            await site.running(1)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await asyncio.sleep(pause_s)

            heard = await site.callers.speak(
                site.urls[number % 2], FRAMES, stream=stream, request_id=name
            )

            assert (heard.status, heard.code) == (200, None)
            assert heard.pcm == heard.undisturbed(FRAMES)
