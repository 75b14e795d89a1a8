"""Signals that are not meant for a service, and reach it all the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

FRAMES = 60


@pytest.fixture(autouse=True)
def hang_ups_count() -> Iterator[None]:
    """Whoever started the tests with nohup would have the processes ignore what is sent here."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_a_hang_up_is_an_orderly_stop_and_a_question_is_answered(
    open_site: OpenSite,
) -> None:
    """SIGUSR1 makes each process say where it stands and go on; at a hang-up, as of a terminal that
    is closed, whoever is heard is spoken to to the end, and all exit 0.
    """
    async with open_site() as site:
        scheduler, worker, gateway = site.scheduler(), site.worker(step_ms=20), site.gateway()
        await site.ready()
        heard = Heard("r")
        answer = site.callers.speaking(gateway.url, FRAMES, stream=JSONL, heard=heard)
        await until(lambda: heard.frames > 5)

        for process in (scheduler, worker, gateway):
            os.kill(process.pid, signal.SIGUSR1)
            await until(lambda: "most recent call first" in process.said)  # noqa: B023
        for process in (gateway, worker, scheduler):
            os.kill(process.pid, signal.SIGHUP)
        await answer

        assert (heard.status, heard.code) == (200, None)
        assert heard.pcm == heard.undisturbed(FRAMES)
        assert [await each.ended() for each in (gateway, worker, scheduler)] == [0, 0, 0]
