"""A Redis that answers, and can't serve now: it is waited for like one that is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.redis, pytest.mark.timeout(240)]

FRAMES = 60
LASTS_S = 1.0
FOR_EVER = "while true do end"

Trouble = Callable[[Site], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def held_by_a_script(site: Site) -> AsyncIterator[None]:
    """Somebody else's, on the same Redis: BUSY, once it has run for so long."""
    site.redis.config_set("lua-time-limit", 100)

    def run() -> None:
        with site.server.client() as client, suppress(redis.ResponseError):
            client.eval(FOR_EVER, 0)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    with site.server.client() as client:
        client.script_kill()
    thread.join()


@asynccontextmanager
async def made_a_replica(site: Site) -> AsyncIterator[None]:
    """READONLY, and UNBLOCKED to who waits."""
    site.redis.replicaof("127.0.0.1", 1)
    yield
    site.redis.replicaof("NO", "ONE")


@asynccontextmanager
async def asking_for_a_password(site: Site) -> AsyncIterator[None]:
    """NOAUTH, to every new connection."""
    site.redis.config_set("requirepass", "secret")
    site.redis.client_kill_filter(_type="normal", skipme=True)
    yield
    site.redis.config_set("requirepass", "")


@asynccontextmanager
async def without_permission(site: Site) -> AsyncIterator[None]:
    """NOPERM, to all that we do."""
    command: Any = site.redis.execute_command
    command("ACL", "SETUSER", "default", "-evalsha", "-eval")
    yield
    command("ACL", "SETUSER", "default", "+@all")


TROUBLES: tuple[Trouble, ...] = (
    held_by_a_script,
    made_a_replica,
    asking_for_a_password,
    without_permission,
)


async def test_a_redis_that_answers_and_cannot_serve_now(open_site: OpenSite) -> None:
    """Streams pause and lose no byte, nobody is started again, and no log is flooded."""
    async with open_site() as site:
        site.scheduler()
        site.gateway()
        for _ in range(2):
            site.worker()
        await site.ready()
        for trouble in TROUBLES:
            heard = [Heard(f"{trouble.__name__}{number}") for number in range(4)]
            answers = [
                site.callers.speaking(site.url, FRAMES, stream=JSONL, heard=each) for each in heard
            ]
            await until(partial(_are_under_way, heard))
            async with trouble(site):
                await asyncio.sleep(LASTS_S)
            await asyncio.gather(*answers)
            await site.settled()

            assert {(each.status, each.code) for each in heard} == {(200, None)}
            assert {each.pcm == each.undisturbed(FRAMES) for each in heard} == {True}
            assert [each for each in site.processes if not each.alive] == []

        said = [each.said for each in site.processes if each.name != "gateway"]
        assert any("BUSY" in each for each in said)
        assert max(each.count("redis_away") for each in said) <= len(TROUBLES)
        assert not any("Traceback" in each for each in said)


def _are_under_way(heard: list[Heard]) -> bool:
    return all(each.frames > 5 for each in heard)
