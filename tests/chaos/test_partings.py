"""Clients that end their connections at any byte of what they say or hear: nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psutil
import pytest

from shared.paths import CANCELLATIONS, OPENAI_SPEECH, SPEECH
from tests.chaos.callers import JSONL, asked
from tests.chaos.conftest import OpenSite
from tests.chaos.process import Process
from tests.chaos.raw import RawClient
from tests.conftest import until
from tests.exposition import samples

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

CLIENTS = 400
AT_ONCE = 40
FRAMES = 200
"""Of each answer: 16 s, if it is spoken to its end."""
GONE_S = 10.0
GETS = ("/health/live", "/metrics", "/psionic/csm/load", "/openapi.json", "/nowhere")
FORMATS: list[dict[str, Any]] = [
    {},
    {"response_format": "pcm"},
    {"stream": True, "stream_format": "jsonl_base64"},
    {"stream": True, "stream_format": "multipart_mixed"},
    {"stream": True, "stream_format": "sse"},
    {"stream": True, "stream_format": "audio", "response_format": "pcm"},
    {"stream": True, "stream_format": "jsonl_base64", "voice_turn_budget_ms": 1},
]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in two pieces."""

    head: bytes
    body: bytes = b""

    @classmethod
    def of(cls, method: str, path: str, body: bytes = b"", *fields: str) -> Ask:
        length = f"content-length: {len(body)}"
        lines = [f"{method} {path} HTTP/1.1", "host: h", "content-type: application/json"]
        return cls("\r\n".join((*lines, *(fields or (length,)), "", "")).encode(), body)


def speech(dice: random.Random, *fields: str) -> Ask:
    body = asked(FRAMES, request_id=uuid4().hex, **dice.choice(FORMATS))
    data = json.dumps(body).encode()
    if fields:
        fields = (*fields, f"content-length: {len(data)}")
    return Ask.of("POST", dice.choice((SPEECH, OPENAI_SPEECH)), data, *fields)


def ask(dice: random.Random) -> Ask:
    """Most ask for speech; the others for everything else that there is, or for nothing."""
    kinds: list[Callable[[], Ask]] = [
        lambda: speech(dice),
        lambda: speech(dice),
        lambda: speech(dice, "expect: 100-continue"),
        lambda: speech(dice, "connection: Upgrade", "upgrade: h2c"),
        lambda: Ask.of("GET", dice.choice(GETS)),
        lambda: Ask.of("HEAD", dice.choice(GETS)),
        lambda: Ask.of("POST", CANCELLATIONS, b'{"request_id": "nobody"}'),
        lambda: Ask.of("POST", SPEECH, b'{"input": '),
        lambda: Ask.of("POST", SPEECH, bytes(100_000)),
        lambda: Ask.of("POST", SPEECH, b"5\r\nhel", "transfer-encoding: chunked"),
        lambda: Ask(dice.randbytes(100)),
    ]
    return dice.choice(kinds)()


async def part(url: str, dice: random.Random) -> None:
    """One client: perhaps an answer first, then a request or a piece of one, and it is gone."""
    client = RawClient(is_small=dice.random() < 0.2)
    with suppress(OSError):
        await client.connect(url)
        for _ in range(dice.randrange(3)):
            await client.send(Ask.of("GET", "/health/live").head)
            await hear(client, 1)
        chosen = ask(dice)
        data = chosen.head + chosen.body
        data += dice.choice((b"", b"", b"", b"\r\n", b"x", data))
        cut = dice.choice((0, len(chosen.head), len(data), len(data), dice.randrange(len(data))))
        await client.send(data[:cut])
        await hear(client, dice.choice((0, 0, 1, 3)))
        await asyncio.sleep(dice.choice((0, 0, 0.001, 0.01, 0.5)))
        if dice.random() < 0.4:
            client.finish()
            await asyncio.sleep(dice.choice((0, 0.01)))
    (client.close if dice.random() < 0.4 else client.reset)()


async def hear(client: RawClient, pieces: int) -> None:
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(0.3):
            for _ in range(pieces):
                await client.read(4096)


def connections(gateway: Process) -> int:
    """Those of its clients."""
    own = int(gateway.url.rpartition(":")[2])
    known = psutil.Process(gateway.pid).net_connections()
    return sum(each.laddr.port == own and each.status != psutil.CONN_LISTEN for each in known)


def levels(gateway: Process) -> set[str]:
    """Of the lines of its log. Fails for what is none."""
    return {json.loads(line)["level"] for line in gateway.said.splitlines()}


async def test_clients_part_at_any_byte(open_site: OpenSite) -> None:
    """None of them is an error of ours, nothing is spoken for who is gone, nothing stays open; and
    those who are in the midst of it when the gateway drains don't keep it.
    """
    async with open_site(PSIONIC_CSM_DRAIN_GRACE_MS="1000") as site:
        site.scheduler()
        gateway = site.gateway()
        site.worker(lanes=8, step_ms=80)
        await site.ready()
        places = asyncio.Semaphore(AT_ONCE)

        async def come_and_go(number: int) -> None:
            async with places:
                await part(gateway.url, random.Random(number))

        await asyncio.gather(*(come_and_go(number) for number in range(CLIENTS)))
        await until(lambda: not site.books().live, GONE_S)
        await until(lambda: connections(gateway) == 0, GONE_S)

        told = samples((await site.callers.http.get(f"{gateway.url}/metrics")).content)
        assert told["psionic_csm_open_requests",] == 0
        assert not any(told[name] for name in told if "internal_error" in name)
        heard = await site.callers.speak(site.url, 5)
        assert heard.pcm == heard.undisturbed(5)

        inside = site.callers.speaking(site.url, FRAMES, stream=JSONL)
        await site.running(1)
        crowd = [asyncio.create_task(come_and_go(number)) for number in range(AT_ONCE)]
        gateway.terminate()
        assert await gateway.ended() == 0
        await asyncio.gather(*crowd)
        assert (await inside).code == "draining"
        assert levels(gateway) <= {"info", "warning"}
        assert "Traceback" not in gateway.said
