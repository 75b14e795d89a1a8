"""A gateway process and a Redis that says anything at all, or a wire that does so in its place."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from scheduler.queue import Claim
from shared.keys import Keys
from shared.wav import wav_file
from tests.conftest import RedisServer, until
from tests.crooked import GARBAGE, ODD, REFUSALS, CrookedWire
from tests.gateway.artifacts import write_artifact
from tests.gateway.processes import Process
from tests.gateway.world import PATIENCE_S, SPEECH, pcm

pytestmark = pytest.mark.redis
HELLO = {"input": "Hello."}
LINES = {"stream": True, "stream_format": "jsonl_base64"}
SOON_S = 20.0
"""Less than a caller would wait who were let in, and more than a busy machine takes to refuse."""

Route = tuple[str, str, dict[str, Any] | None]

ASKING: tuple[Route, ...] = (
    ("POST", SPEECH, HELLO),
    ("POST", SPEECH, {**HELLO, **LINES}),
    ("POST", SPEECH, {**HELLO, "request_id": "old"}),
    ("POST", "/v1/audio/speech", HELLO),
    ("POST", "/v1/audio/speech", {**HELLO, "stream_format": "sse"}),
    ("POST", "/psionic/csm/cancellations", {"request_id": "gone"}),
    ("POST", "/psionic/csm/cancellations", {"cancellation_id": "turn"}),
    ("GET", f"{SPEECH}/old", None),
    ("GET", f"{SPEECH}/old/audio", None),
    ("GET", "/psionic/csm/evidence/old", None),
    ("POST", "/psionic/csm/evidence/old/outcome", {"outcome": "accepted"}),
)
"""What can't be answered without Redis."""

TELLING: tuple[Route, ...] = tuple(
    ("GET", path, None)
    for path in (
        *("/health", "/v1/models", "/psionic/csm/worker/metadata", "/metrics", "/psionic/csm/load"),
    )
)
"""What says how it stands, by what was known a moment ago."""

SAID = {
    name: (REFUSALS | GARBAGE)[name]
    for name in (
        *("busy", "no permission", "a password", "too old", "a cluster", "another type"),
        *("nothing said", "http", "an integer in words", "a tower"),
    )
} | {name: ODD[name] for name in ("an integer", "nothing", "texts", "lists")}
TOO_MANY = "too many"


class Site:
    """The process, the wire to its Redis, and those who ask."""

    def __init__(self, process: Process, wire: CrookedWire) -> None:
        self.process = process
        self.wire = wire
        self.redis = process.server.client()
        self.http = httpx.AsyncClient(
            base_url=process.http.base_url, timeout=2 * PATIENCE_S, trust_env=False
        )

    async def ask(self, route: Route) -> httpx.Response:
        method, path, body = route
        return await self.http.request(method, path, json=body)

    async def is_ready(self) -> bool:
        return (await self.http.get("/health/ready")).status_code == 200

    async def ready(self, wanted: bool = True) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.is_ready() is not wanted:  # noqa: ASYNC110  another process's
                await asyncio.sleep(0.02)

    async def spoken(self, request_id: str) -> httpx.Response:
        """The answer to a request that the worker serves, once nobody waits who has gone."""
        await until(lambda: self.waiting() == 0)
        asking = asyncio.create_task(
            self.ask(("POST", SPEECH, {**HELLO, "request_id": request_id}))
        )
        await until(lambda: self.waiting() == 1)
        claim = self.process.worker.queue.claim(uuid4().hex)
        assert isinstance(claim, Claim)
        self.process.worker.post(claim, 0, 1)
        self.process.worker.end(claim, 2)
        return await asking

    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        queue = self.process.worker.artifact.queue_name("t")
        return int(self.redis.zcard(Keys("t").waiting(queue)))

    def faults(self) -> list[Any]:
        """Log lines of what nobody foresaw."""
        return [
            line for line in self.process.lines if "exception" in line or "died" in line["event"]
        ]


@pytest.fixture
async def site(redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Site]:
    wire = CrookedWire(redis_server.port)
    url = await wire.open()
    artifact = write_artifact(tmp_path / "artifact")
    process = await asyncio.to_thread(Process, redis_server, artifact, PSIONIC_CSM_REDIS_URL=url)
    site = Site(process, wire)
    await site.ready()
    yield site
    await site.http.aclose()
    site.redis.close()
    await asyncio.to_thread(process.close)
    await wire.close()


async def test_whatever_redis_says_every_route_answers(site: Site) -> None:
    """With 503 where Redis is needed, and never with a defect; live all the time, ready again at
    once, and told to stop it stops.
    """
    assert (await site.spoken("old")).status_code == 200
    for name, reply in SAID.items():
        site.wire.always(reply)
        answers = await asyncio.gather(*map(site.ask, (*ASKING, *TELLING)))
        live = await site.http.get("/health/live")
        statuses = [answer.status_code for answer in answers]
        needing = statuses[: len(ASKING)]
        assert set(needing) <= ({503, 404, 200, 201, 202} if name in ODD else {503}), name
        assert set(statuses[len(ASKING) : -1]) == {200}, name
        assert statuses[-1] in (200, 503), name
        assert live.status_code == 200, live.text
        site.wire.answer = None
        await site.ready()

    assert (await site.spoken("new")).content == wav_file(pcm(0) + pcm(1))
    site.process.signal(signal.SIGTERM)
    assert await asyncio.to_thread(site.process.exit_status) == 0
    assert site.faults() == []
    told = [line.get("error", "") for line in site.process.lines if line["event"] == "request"]
    assert any("BUSY Redis is busy" in error for error in told)
    assert not any("a text" in error for error in told)


async def test_who_is_being_served_hears_the_rest(site: Site) -> None:
    """Whatever Redis says in the midst of an answer, in one piece and in a stream."""
    asking = [
        asyncio.create_task(site.ask(("POST", SPEECH, {**HELLO, "timeout_ms": 30_000, **more})))
        for more in ({"request_id": "one"}, {"request_id": "lines", **LINES})
    ]
    claims = [await asyncio.to_thread(site.process.claim) for _ in asking]
    for name in ("busy", "a password", "http", "an integer", "nothing", "texts", TOO_MANY):
        if name == TOO_MANY:
            site.wire.answer = lambda _, reply: reply + ODD["an integer"]
        else:
            site.wire.always(SAID[name])
        for claim in claims:
            site.process.worker.post(claim, 0)
        await asyncio.sleep(0.15)
        site.wire.answer = None
        await site.ready()
    for claim in claims:
        site.process.worker.post(claim, 1)
        site.process.worker.end(claim, 2)

    one, lines = await asyncio.gather(*asking)

    assert (one.status_code, one.content) == (200, wav_file(pcm(0) + pcm(1)))
    heard = [event["event"] for event in map(json.loads, lines.text.splitlines())]
    assert heard == ["start", "audio", "audio", "terminal"]
    assert site.faults() == []


async def test_nobody_is_let_in_who_could_hear_nothing(site: Site) -> None:
    """Where the events of jobs alone can't be read: refused soon and not ready, until they can."""
    site.wire.answer = lambda command, reply: (
        REFUSALS["no permission"] if command == "XREAD" else reply
    )
    site.process.worker.beat()
    await site.ready(False)
    asked_at = time.monotonic()
    refused = await site.ask(("POST", SPEECH, {**HELLO, "timeout_ms": 30_000}))
    waited_s = time.monotonic() - asked_at
    site.wire.answer = None
    await site.ready()

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_unavailable")
    assert waited_s < SOON_S
    assert (await site.spoken("new")).status_code == 200
    lost = [line for line in site.process.lines if line["event"] == "event_reader_lost_redis"]
    assert ["NoPermissionError" in line["error"] for line in lost] == [True]
