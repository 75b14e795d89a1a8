"""Workers that are told to stop, with jobs running and waiting: nobody who listens sees it."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import PACED, START_S
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

FRAMES = 50


async def test_a_worker_drains_under_load(open_site: OpenSite) -> None:
    """It finishes what it speaks, takes nothing more and exits 0; the rest speak elsewhere."""
    async with open_site() as site:
        site.gateway()
        first = site.worker()
        await site.ready()
        heard = [Heard(f"r{number}") for number in range(8)]
        answers = [
            site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard
        ]
        await site.running(4)
        await site.waiting(4)
        site.worker()
        await until(lambda: len(site.ready_workers()) >= 2, START_S)
        first.terminate()

        assert await first.ended() == 0
        await asyncio.gather(*answers)

        assert {(each.status, each.code, each.attempt) for each in heard} == {(200, None, 1)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}


async def test_the_same_job_is_handed_back_again_and_again(open_site: OpenSite) -> None:
    """However often: it is no attempt, and the answer is that of an undisturbed run."""
    async with open_site(PSIONIC_CSM_DRAIN_GRACE_MS="0") as site:
        site.gateway()
        for _ in range(4):
            site.worker(lanes=1, step_ms=100)  # so slow that none is done before its turn comes
        await site.ready()
        heard = Heard("r")
        answer = site.callers.speaking(site.url, 150, stream=JSONL, heard=heard, request_id="r")
        spoke: set[int] = set()
        for last in (False, False, False, True):
            before = heard.frames
            await until(lambda before=before: heard.frames > before + 3)  # type: ignore[misc]
            speaker = site.speaker_of("r")
            spoke.add(speaker.pid)
            if last:
                site.worker(step_ms=5)
                await until(lambda: len(site.ready_workers()) >= 2, START_S)
            speaker.terminate()
            assert await speaker.ended() == 0
        await answer

        assert len(spoke) == 4
        assert (heard.status, heard.code, heard.attempt) == (200, None, 1)
        assert heard.pcm == heard.undisturbed(150)


async def test_all_workers_are_replaced_under_load(open_site: OpenSite) -> None:
    """One after the other, while callers call without a pause: not one request fails."""
    async with open_site(PSIONIC_CSM_DRAIN_GRACE_MS="300") as site:
        site.scheduler()
        site.gateway()
        for _ in range(3):
            site.worker(step_ms=20)
        await site.ready()
        stop = asyncio.Event()
        heard: list[Heard] = []

        async def caller() -> None:
            while not stop.is_set():
                heard.append(await site.callers.speak(site.url, 30, stream=JSONL))

        calling = [asyncio.create_task(caller()) for _ in range(16)]
        for old in site.living("worker"):
            site.worker(step_ms=20)
            await until(lambda: len(site.ready_workers()) >= 4, START_S)
            old.terminate()
            assert await old.ended() == 0
        stop.set()
        await asyncio.gather(*calling)

        assert len(heard) > 50
        assert {(each.status, each.code, each.attempt) for each in heard} == {(200, None, 1)}
        assert {each.pcm == each.undisturbed(30) for each in heard} == {True}


@pytest.mark.parametrize("module", [PACED, "gpu_worker"])
async def test_an_idle_process_told_to_stop_twice(open_site: OpenSite, module: str) -> None:
    """Whenever the second signal comes, even as the process is ending: it exits 0."""
    async with open_site() as site:
        site.gateway()
        pauses = (0.0, 0.2)
        workers = [
            site.worker() if module == PACED else site.start("worker", module) for _ in pauses
        ]
        await site.ready()

        async def tell(number: int) -> int:
            workers[number].terminate()
            await asyncio.sleep(pauses[number])
            while workers[number].alive:
                workers[number].terminate()
                await asyncio.sleep(0.002)
            return await workers[number].ended()

        assert [await tell(number) for number in range(len(pauses))] == [0] * len(pauses)


@pytest.mark.parametrize("role", ["scheduler", "gateway"])
async def test_the_others_told_to_stop_twice(open_site: OpenSite, role: str) -> None:
    """Told again and again until they are gone, gateway and scheduler exit 0, too."""
    async with open_site() as site:
        site.gateway()
        site.scheduler()
        site.worker()
        await site.ready()
        (process,) = site.living(role)
        await until(lambda: "started" in process.said or "listening" in process.said)
        while process.alive:
            process.terminate()
            await asyncio.sleep(0.002)

        assert await process.ended() == 0


async def test_a_worker_is_told_to_stop_while_redis_is_gone(open_site: OpenSite) -> None:
    """It can tell nobody, and ends in its time with 0; its job goes on when Redis is back."""
    async with open_site(PSIONIC_CSM_DRAIN_GRACE_MS="500") as site:
        site.scheduler()
        site.gateway()
        first = site.worker()
        await site.ready()
        heard = Heard("r")
        answer = site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=heard)
        await until(lambda: heard.frames > 5)
        site.server.stop()
        first.terminate()
        assert await first.ended() == 0
        await asyncio.to_thread(site.server.start)
        site.worker()
        await answer

        assert (heard.status, heard.code) == (200, None)
        assert heard.pcm == heard.undisturbed(FRAMES)
