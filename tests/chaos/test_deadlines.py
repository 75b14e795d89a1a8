"""Whatever dies or stalls, nobody waits longer than a second past the time that they gave."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import BUSY_S, Site

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

TIMEOUT_MS = 6500
LATE_S = 1.0
"""The promise."""
CALLERS = 8
FRAMES = 25
"""Two seconds, so that the door lets as many wait as can speak."""


def strike(site: Site, what: str) -> None:
    for worker in site.living("worker"):
        if what == "workers_stalled":
            worker.stop()
        elif what in ("workers_killed", "all_killed"):
            worker.kill()
    if what == "all_killed":
        site.living("scheduler")[0].kill()
    if what in ("redis_killed", "all_killed"):
        site.server.stop(kill=True)
    if what == "redis_stalled":
        os.kill(site.server.pid, signal.SIGSTOP)


async def mend(site: Site, what: str) -> None:
    for worker in site.living("worker"):
        worker.go_on()
    if what in ("redis_killed", "all_killed"):
        await asyncio.to_thread(site.server.start)
    if what == "redis_stalled":
        os.kill(site.server.pid, signal.SIGCONT)
    if not site.living("scheduler"):
        site.scheduler()
    if not site.living("worker"):
        site.worker()


@pytest.mark.parametrize(
    "what", ["workers_killed", "workers_stalled", "redis_killed", "redis_stalled", "all_killed"]
)
async def test_nobody_waits_past_their_deadline(open_site: OpenSite, what: str) -> None:
    """Those who are spoken to and those who wait hear a code in time, and a true prefix at most."""
    async with open_site() as site:
        site.scheduler()
        site.gateway()
        site.worker(step_ms=80)
        await site.ready()
        heard = [Heard(f"r{number}") for number in range(CALLERS)]
        answers = [
            site.callers.speaking(
                site.url,
                FRAMES,
                stream=(None, JSONL)[number % 2],
                heard=each,
                timeout_ms=TIMEOUT_MS,
                request_id=each.request_id,
            )
            for number, each in enumerate(heard)
        ]
        await site.running(4)
        await site.waiting(4)
        strike(site, what)

        await asyncio.gather(*answers)

        allowed = {"queue_timeout", "generation_timeout", "queue_unavailable", "worker_lost"}
        assert {each.code for each in heard} <= allowed
        waits = [(round(each.total_s, 2), each.code, each.frames, each.times) for each in heard]
        assert max(waits)[0] < TIMEOUT_MS / 1000 + LATE_S + BUSY_S, waits
        for each in heard:
            assert each.pcm == each.undisturbed(each.frames)
        await mend(site, what)
