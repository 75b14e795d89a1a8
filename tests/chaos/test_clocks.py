"""Processes whose wall clocks are an hour off, before and behind: nothing changes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import PACED
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

SHIFTED = Path(__file__).with_name("shifted_clock")
HOUR_S = 3600


def clock(shift_s: int) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SHIFTED), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, "CLOCK_SHIFT_S": str(shift_s)}


@pytest.mark.parametrize("sign", [1, -1], ids=["gateway-before", "gateway-behind"])
async def test_wall_clocks_an_hour_off(open_site: OpenSite, sign: int) -> None:
    """A worker, a gateway and a scheduler disagree by two hours: answers, deadlines, cancels,
    failover, replays and what expires are as ever.
    """
    async with open_site() as site:
        site.start("scheduler", "scheduler", **clock(sign * HOUR_S))
        site.gateway(**clock(sign * HOUR_S))
        site.gateway()
        for shift_s in (-sign * HOUR_S, sign * HOUR_S):
            site.start("worker", PACED, "--lanes", "4", "--step-ms", "20", **clock(shift_s))
        await site.ready()
        started = [said["started_at_unix_ms"] / 1000 for said in site.ready_workers().values()]
        assert max(started) - min(started) > 1.9 * HOUR_S
        assert all(abs(time.time() - each) > 0.9 * HOUR_S for each in started)
        before = await site.baseline()

        heard = [Heard(f"r{number}") for number in range(8)]
        answers = [
            site.callers.speaking(site.urls[number % 2], 80, stream=JSONL, heard=each)
            for number, each in enumerate(heard)
        ]
        await until(lambda: all(each.frames > 5 for each in heard))
        site.speaker_of("r0").kill()
        await asyncio.gather(*answers)
        again = await site.callers.speak(site.urls[1], 80, request_id="r0")
        late = await site.callers.speak(site.urls[0], 240, timeout_ms=2000)
        cancelled = site.callers.speaking(site.urls[0], 240, request_id="turn", stream=JSONL)
        await site.running(1)
        assert await site.callers.cancel(site.urls[1], request_id="turn")

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(80) for each in heard} == {True}
        assert (again.pcm, again.facts["replayed"]) == (again.undisturbed(80), True)
        assert (late.status, late.code) == (504, "generation_timeout")
        assert 1.9 < late.total_s < 6
        assert (await cancelled).code == "cancelled"
        await site.settled()
        await site.back_to(before)
