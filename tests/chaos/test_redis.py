"""Redis restarts, dies and is gone for a while, its append-only file on: nothing is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

FRAMES = 50
CALLERS = 16
"""Twice the lanes: half of them wait."""
ALWAYS = ("--appendfsync", "always")


async def busy(site: Site) -> tuple[list[Heard], list[asyncio.Task[Heard]]]:
    """Two workers of four lanes each speak, and as many callers again wait."""
    site.scheduler()
    site.gateway()
    for _ in range(2):
        site.worker()
    await site.ready()
    heard = [Heard(f"r{number}") for number in range(CALLERS)]
    answers = [site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard]
    await until(lambda: sum(each.frames > 5 for each in heard) == 8)
    await site.waiting(8)
    return heard, answers


@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "killed"])
async def test_a_restart_loses_nothing_that_was_admitted(open_site: OpenSite, kill: bool) -> None:
    """Those who are spoken to and those who wait get every byte; killed, with fsync always."""
    async with open_site(*ALWAYS) as site:
        heard, answers = await busy(site)
        site.server.stop(kill=kill)
        await asyncio.to_thread(site.server.start, *ALWAYS)

        await asyncio.gather(*answers)

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}


async def test_a_kill_with_fsync_each_second_leaves_nobody_without_an_answer(
    open_site: OpenSite,
) -> None:
    """What the last second's writes were may be gone: every byte, or a typed error in time."""
    async with open_site() as site:
        heard, answers = await busy(site)
        site.server.stop(kill=True)
        await asyncio.to_thread(site.server.start)

        await asyncio.gather(*answers)

        for each in heard:
            assert each.code in (None, "queue_unavailable", "worker_lost", "generation_timeout")
            assert each.pcm == each.undisturbed(FRAMES)[: len(each.pcm)]
            assert each.code or each.frames == FRAMES
            assert each.total_s < 36


async def test_ten_seconds_without_redis(open_site: OpenSite) -> None:
    """Newcomers are refused with the code and at once; what runs goes on where it was.

    On the return nobody's live lease is stolen, and warm workers are the same processes.
    """
    async with open_site() as site:
        heard, answers = await busy(site)
        workers = set(site.ready_workers())
        site.server.stop()
        gone = time.monotonic()
        refused: list[Heard] = []
        while time.monotonic() - gone < 10:
            refused.append(await site.callers.speak(site.url, 10))
            await asyncio.sleep(0.2)
        await asyncio.to_thread(site.server.start)

        await asyncio.gather(*answers)

        assert {(each.status, each.code) for each in refused} == {(503, "queue_unavailable")}
        assert max(each.total_s for each in refused) < 6
        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert {each.attempt for each in heard} == {1}
        await site.settled()
        assert set(site.ready_workers()) == workers


async def test_a_full_disk_under_redis(open_site: OpenSite) -> None:
    """It answers and takes no writes: newcomers are refused with the code, and nobody inside loses
    a word. As soon as there is room all goes on, and nobody is started again.
    """
    async with open_site() as site:
        heard, answers = await busy(site)
        site.server.fill_disk()
        await site.serving(site.url, wanted=False)
        refused = await site.callers.speak(site.url, 10)
        site.server.fill_disk(False)
        await site.serving(site.url)

        await asyncio.gather(*answers)

        assert (refused.status, refused.code) == (503, "queue_unavailable")
        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert any("MISCONF" in each.said for each in site.processes)
