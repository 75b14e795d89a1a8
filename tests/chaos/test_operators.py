"""What an operator, or another program, does to a Redis that is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.chaos.callers import JSONL, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.redis, pytest.mark.timeout(240)]

LONG, SHORT = 60, 5
LASTS_S = 1.0

Deed = Callable[[Site], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def killing_clients(site: Site) -> AsyncIterator[None]:
    for _ in range(5):
        site.redis.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.1)
    yield


@asynccontextmanager
async def pausing_clients(site: Site) -> AsyncIterator[None]:
    with site.server.client() as client:
        client.client_pause(int(LASTS_S * 1000))
    yield


@asynccontextmanager
async def taking_few_clients(site: Site) -> AsyncIterator[None]:
    """Those that there are stay, so they are made to come again."""
    most: Any = site.redis.config_get("maxclients")
    site.redis.config_set("maxclients", 2)
    site.redis.client_kill_filter(_type="normal", skipme=True)
    yield
    site.redis.config_set("maxclients", most["maxclients"])


@asynccontextmanager
async def flushing_scripts(site: Site) -> AsyncIterator[None]:
    for _ in range(20):
        site.redis.script_flush()
        await asyncio.sleep(LASTS_S / 20)
    yield


@asynccontextmanager
async def wanting_replicas(site: Site) -> AsyncIterator[None]:
    site.redis.config_set("min-replicas-to-write", 1)
    yield
    site.redis.config_set("min-replicas-to-write", 0)


DEEDS: tuple[Deed, ...] = (
    killing_clients,
    pausing_clients,
    taking_few_clients,
    flushing_scripts,
    wanting_replicas,
)


async def test_what_operators_do_to_a_redis_in_use(open_site: OpenSite) -> None:
    """Who is being served loses no byte, newcomers are served or refused, and nobody is started
    again: all goes on by itself.
    """
    async with open_site() as site:
        site.scheduler()
        for _ in range(2):
            site.gateway()
            site.worker(lanes=8, step_ms=25)
        await site.ready()
        for deed in DEEDS:
            heard = [Heard(f"{deed.__name__}{number}") for number in range(4)]
            inside = [
                site.callers.speaking(site.urls[number % 2], LONG, stream=JSONL, heard=each)
                for number, each in enumerate(heard)
            ]
            await until(lambda heard=heard: all(each.frames > 5 for each in heard))  # type: ignore[misc]
            newcomers = asyncio.create_task(_calling(site))
            async with deed(site):
                await asyncio.sleep(LASTS_S)
            answers = await newcomers
            await asyncio.gather(*inside)

            assert {(each.status, each.code) for each in heard} == {(200, None)}
            assert {each.pcm == each.undisturbed(LONG) for each in heard} == {True}
            assert {each.status for each in answers} <= {200, 429, 503}
            whole = [each for each in answers if each.code is None]
            assert {each.pcm == each.undisturbed(SHORT) for each in whole} <= {True}
            assert [each for each in site.processes if not each.alive] == []

        said = [each.said for each in site.processes]
        assert not any("Traceback" in each or "internal_error" in each for each in said)


async def _calling(site: Site) -> list[Heard]:
    """One newcomer after another, at either gateway, for as long as a deed lasts."""

    async def one(number: int) -> Heard:
        await asyncio.sleep(number * LASTS_S / 30)
        return await site.callers.speak(site.urls[number % 2], SHORT, timeout_ms=10_000)

    return list(await asyncio.gather(*(one(number) for number in range(30))))
