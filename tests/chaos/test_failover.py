"""Workers that die or stall in the middle of a word: their listeners hear no seam."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.chaos.callers import JSONL, RAW, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import AUDIBLE_AGAIN_S, Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

MORTAL = "tests.chaos.mortal_worker"
HASTY = "tests.chaos.hasty_worker"
FRAMES = 60
KEPT = {"PSIONIC_CSM_RESULT_TTL_MS": "60000", "PSIONIC_CSM_METADATA_TTL_MS": "60000"}


async def two_workers(site: Site) -> None:
    site.scheduler()
    site.gateway()
    for _ in range(2):
        site.worker()
    await site.ready()


@pytest.mark.parametrize("stream", [JSONL, RAW])
async def test_a_worker_killed_in_mid_stream(open_site: OpenSite, stream: str) -> None:
    """Its listeners hear the bytes of an undisturbed run, and are without sound for 6 s at most."""
    async with open_site() as site:
        await two_workers(site)
        heard = [Heard(f"r{number}") for number in range(6)]
        speaking = [
            site.callers.speaking(site.url, FRAMES, stream=stream, heard=each) for each in heard
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        site.speaker_of("r0").kill()
        await asyncio.gather(*speaking)

        assert [(each.status, each.code) for each in heard] == [(200, None)] * 6
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert max(each.gap_s for each in heard) < AUDIBLE_AGAIN_S
        if stream == JSONL:
            assert sorted({each.attempt for each in heard}) == [1, 2]


async def test_a_worker_that_stalls_past_its_lease(open_site: OpenSite) -> None:
    """It wakes to find its jobs gone: it writes nothing more about them, and it serves on."""
    async with open_site(**KEPT) as site:
        await two_workers(site)
        heard = [Heard(f"r{number}") for number in range(6)]
        speaking = [
            site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        stalled = site.speaker_of("r0")
        stalled.stop()
        await asyncio.gather(*speaking)
        written = {each.request_id: site.events_of(each.request_id) for each in heard}
        stalled.go_on()
        await until(lambda: stalled.said.count("lease_lost") >= 1)
        await site.settled()

        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert max(each.gap_s for each in heard) < AUDIBLE_AGAIN_S
        assert written == {each.request_id: site.events_of(each.request_id) for each in heard}
        assert stalled.alive
        assert len(site.ready_workers()) == 2


@pytest.mark.parametrize("point", ["pulled", "claimed", "shown", "posted", "ended"])
async def test_a_worker_may_die_at_any_point_of_a_job(open_site: OpenSite, point: str) -> None:
    """Between RQ's list and the claim, before the first frame, after the end: the answer comes."""
    async with open_site() as site:
        site.gateway()
        mortal = site.worker(module=(MORTAL, point))
        await site.ready()
        answer = site.callers.speaking(site.url, 10, stream=JSONL)
        assert await mortal.ended() == -signal.SIGKILL
        site.worker()

        heard = await answer

        assert (heard.status, heard.code, heard.pcm) == (200, None, heard.undisturbed(10))
        assert heard.attempt == (1 if point in ("pulled", "ended") else 2)


async def test_a_worker_may_die_while_it_hands_back(open_site: OpenSite) -> None:
    """Between giving a job back and telling RQ so: another goes on, on the first attempt."""
    async with open_site(PSIONIC_CSM_DRAIN_GRACE_MS="0") as site:
        site.gateway()
        mortal = site.worker(module=(MORTAL, "handed_back"))
        await site.ready()
        heard = Heard("r")
        answer = site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=heard)
        await until(lambda: heard.frames > 5)
        mortal.terminate()
        assert await mortal.ended() == -signal.SIGKILL
        site.worker()

        await answer

        assert (heard.code, heard.attempt, heard.pcm) == (None, 1, heard.undisturbed(FRAMES))


@pytest.mark.parametrize("stream", [None, JSONL])
async def test_a_job_that_loses_both_attempts(open_site: OpenSite, stream: str | None) -> None:
    """Its caller hears ``worker_lost``, as a status or as the stream's last event."""
    async with open_site() as site:
        site.scheduler()
        site.gateway()
        mortal = site.worker(module=(MORTAL, "posted"))
        await site.ready()
        answer = site.callers.speaking(site.url, FRAMES, stream=stream)
        await mortal.ended()
        await site.worker(module=(MORTAL, "posted")).ended()

        heard = await answer

        assert (heard.status, heard.code) == (502 if stream is None else 200, "worker_lost")
        assert heard.pcm == heard.undisturbed(heard.frames)
        if stream is not None:
            assert heard.frames == heard.facts["generated_frame_count"] > 0


async def test_a_worker_whose_engine_hangs(open_site: OpenSite) -> None:
    """Its process lives and renews its leases, but no step returns: it ends with 70, and those who
    sat beside the text that did it are spoken to their end elsewhere.
    """
    async with open_site() as site:
        site.gateway()
        hasty = site.worker(module=(HASTY,))
        await site.ready()
        heard = [Heard(f"r{number}") for number in range(2)]
        answers = [
            site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        cause = Heard("cause")
        answers.append(
            site.callers.speaking(site.url, 40, stream=JSONL, heard=cause, input="[hang 5] Hello.")
        )
        code = await hasty.ended()
        assert await site.callers.cancel(site.url, request_id="cause")
        site.worker()

        await asyncio.gather(*answers)

        assert (code, hasty.said.count('"stuck"')) == (70, 1)
        assert (cause.code, cause.frames) == ("cancelled", 5)
        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
        assert {each.attempt for each in heard} == {2}


async def test_all_workers_die_and_one_comes_back(open_site: OpenSite) -> None:
    """What runs and what waits is kept by the scheduler process alone until somebody can speak."""
    async with open_site() as site:
        await two_workers(site)
        answers = [site.callers.speaking(site.url, 30) for _ in range(16)]
        await site.running(8)
        await site.waiting(8)
        for worker in site.living("worker"):
            worker.kill()
        await site.waiting(16)
        site.worker()

        heard = await asyncio.gather(*answers)

        assert {(each.status, each.pcm == each.undisturbed(30)) for each in heard} == {(200, True)}


async def test_the_scheduler_process_dies(open_site: OpenSite) -> None:
    """Killed for good, nothing stops: workers put right what a dead one of theirs left behind."""
    async with open_site() as site:
        await two_workers(site)
        heard = [Heard(f"r{number}") for number in range(12)]
        answers = [
            site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard
        ]
        await until(lambda: sum(each.frames > 0 for each in heard) == 8)
        site.living("scheduler")[0].kill()
        site.living("worker")[0].kill()

        await asyncio.gather(*answers)

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
