"""Clients that read nothing, read a byte now and then, or talk rubbish: nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median

import pytest

from tests.chaos.callers import JSONL, RAW, Heard, asked
from tests.chaos.conftest import OpenSite
from tests.chaos.raw import RawClient, speech_request
from tests.chaos.site import SETTLE_S, Site
from tests.conftest import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

LONG = 250
DEAD = 30
ROUNDS = 4
MIB = 1 << 20


async def dead_readers(site: Site, transport: str) -> list[RawClient]:
    """They ask for the longest answer as a stream and take nothing of it."""
    clients = [RawClient() for _ in range(DEAD)]
    for client in clients:
        await client.connect(site.url)
        body = asked(LONG, stream=True, stream_format=transport)
        if transport == RAW:
            body |= {"response_format": "pcm"}
        assert await client.send(speech_request(body))
    return clients


@pytest.mark.parametrize("byte_a_second", [False, True], ids=["dead", "slow"])
async def test_readers_who_do_not_read(open_site: OpenSite, byte_a_second: bool) -> None:
    """Their lanes are free after the jobs' own length, the gateway's memory stays flat, and whoever
    reads is served as if they weren't there.
    """
    async with open_site() as site:
        site.scheduler()
        gateway = site.gateway()
        site.worker(lanes=16, step_ms=5)
        await site.ready()
        resident: list[int] = []

        async def sip(client: RawClient) -> None:
            for _ in range(120):
                await client.read(1)
                await asyncio.sleep(1)

        for number in range(ROUNDS):
            clients = await dead_readers(site, (RAW, JSONL)[number % 2])
            sipping = [asyncio.create_task(sip(each)) for each in clients if byte_a_second]
            await site.running(16)
            heard = await site.callers.speak(site.url, 40, stream=JSONL)
            await until(lambda: not site.books().live, SETTLE_S)
            assert heard.pcm == heard.undisturbed(40)
            resident.append(gateway.rss)
            for task in sipping:
                task.cancel()
            for client in clients:
                client.close()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*sipping, return_exceptions=True)
            await site.settled()

        assert resident[0] < 256 * MIB
        assert max(resident[2:]) - max(resident[:2]) < 16 * MIB


def rubbish(dice: random.Random) -> bytes:
    """Something that is no request, or never becomes one."""
    kinds: list[Callable[[], bytes]] = [
        lambda: dice.randbytes(dice.randrange(1, 4096)),
        lambda: b"\x16\x03\x01\x02\x00\x01\x00" + dice.randbytes(512),  # TLS knocks
        lambda: b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
        lambda: b"POST /psionic/csm/speech HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n{",
        lambda: (
            b"POST /psionic/csm/speech HTTP/1.1\r\nhost: x\r\n"
            b"transfer-encoding: chunked\r\n\r\nzz\r\n" + dice.randbytes(64)
        ),
        lambda: speech_request({"input": "\ud800"})[:-3],
        lambda: b"\r\n" * 1000,
        lambda: b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 50,
    ]
    return dice.choice(kinds)()


async def pest(url: str, stop: asyncio.Event, dice: random.Random) -> None:
    """Connects, talks rubbish, sometimes waits for an answer, sometimes drips like a slow loris."""
    while not stop.is_set():
        client = RawClient()
        with suppress(OSError):
            await client.connect(url)
            data = rubbish(dice)
            if dice.random() < 0.3:
                for byte in data[:20]:
                    await asyncio.sleep(0.1)
                    if stop.is_set() or not await client.send(bytes([byte])):
                        break
            else:
                await client.send(data)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await client.read(4096)
        client.close()


async def test_a_flood_of_rubbish(open_site: OpenSite) -> None:
    """Random bytes, endless heads, slow loris, broken chunks: those who ask properly are served."""
    async with open_site() as site:
        site.scheduler()
        gateway = site.gateway()
        site.worker(lanes=8, step_ms=40)
        await site.ready()
        resident = gateway.rss
        prober = site.start("prober", "tests.chaos.prober", site.url)
        stop = asyncio.Event()
        pests = [
            asyncio.create_task(pest(site.url, stop, random.Random(seed))) for seed in range(60)
        ]
        heard: list[Heard] = []
        began = time.monotonic()
        while time.monotonic() - began < 8:
            heard += await asyncio.gather(
                *(site.callers.speak(site.url, 25, stream=JSONL) for _ in range(8))
            )
        stop.set()
        await asyncio.gather(*pests)
        prober.terminate()
        assert await prober.ended() == 0

        assert {(each.status, each.code) for each in heard} == {(200, None)}
        assert {each.pcm == each.undisturbed(25) for each in heard} == {True}
        assert max(each.total_s for each in heard) < 12
        assert median(json.loads(prober.said)) < 100
        assert gateway.rss - resident < 64 * MIB
        assert gateway.alive
        assert "Traceback" not in gateway.said
