"""One whole stack over real processes for a chaos module, and eyes on its books."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import redis

from benchmarks.books import Books
from cli.artifacts import chosen_or_demo
from tests.chaos.site import SHORT_LIVED, Site
from tests.conftest import until
from tests.e2e.stacks import CommandLine, Up, demo_cache, noise

__all__ = ["demo_cache"]

NAMESPACE: Final = "csm"
TEXT: Final = "This answer is long enough to be in the middle of a sentence when something dies."
SETTLE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one caller got. ``digest`` is of the samples that arrived whole."""

    status: int
    code: str | None
    digest: str | None = None
    attempt: int = 0


class Chaos:
    """A stack of two workers, those who call it, and whoever looks at it from outside."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.url = up.url
        line = up.wait_for(r"\| redis +redis://")
        found = re.search(r"redis://[0-9.:/]+", line)
        assert found is not None
        self.redis_url = found[0]
        self.redis: redis.Redis = redis.Redis.from_url(self.redis_url)
        limits = httpx.Limits(max_connections=2000, max_keepalive_connections=0)
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False, limits=limits)

    def pids(self, role: str) -> list[int]:
        """The processes of one role: ``redis``, or a package of ours that runs."""
        if role == "redis":
            return [int(self.redis.info("server")["process_id"])]
        found = self.up.command_line.processes().items()
        return sorted(pid for pid, command in found if f"-m {role}" in command)

    def signal(self, role: str, signum: int) -> int:
        pid = self.pids(role)[0]
        os.kill(pid, signum)
        return pid

    async def stall(self, role: str, seconds: float) -> None:
        """Stop one process and let it go on later."""
        pid = self.signal(role, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    async def speak(self, request_id: str | None = None, **body: Any) -> Answer:
        """Ask for speech in one piece; status 0 when the connection broke."""
        asked = {
            "input": TEXT,
            "request_id": request_id or uuid4().hex,
            "seed": 5,
            "max_audio_length_ms": 3600,
            "timeout_ms": 30_000,
            **body,
        }
        try:
            answer = await self.http.post("/psionic/csm/speech", json=asked)
        except httpx.TransportError:
            return Answer(0, "connection_lost")
        if answer.status_code != 200:
            return Answer(answer.status_code, answer.json()["error"]["code"])
        return Answer(
            200,
            None,
            answer.headers["x-psionic-csm-pcm16-sha256"],
            int(answer.headers["x-psionic-csm-attempt"]),
        )

    async def cancel(self, **body: str) -> int:
        answer = await self.http.post("/psionic/csm/cancellations", json=body)
        return answer.status_code

    def books(self) -> Books:
        """The books as they are now, which must balance whatever has just died."""
        books = Books.read(self.redis, NAMESPACE)
        assert books.faults() == []
        return books

    async def running(self, count: int) -> None:
        """So many jobs are being spoken."""
        await until(lambda: sum(map(len, self.books().running.values())) >= count, SETTLE_S)

    async def settled(self) -> None:
        """Nothing waits or runs, lanes and listeners agree, and everybody is back."""

        def quiet() -> bool:
            try:
                books = self.books()
            except redis.exceptions.RedisError:
                return False
            ready = [said for said in books.workers.values() if said["state"] == "ready"]
            return books.idle and not books.unsettled(waiters=0) and len(ready) >= 2

        await until(quiet, SETTLE_S)
        await self._serving()

    async def _serving(self) -> None:
        for _ in range(200):
            try:
                if (await self.http.get("/health/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
        pytest.fail("the gateway does not serve")

    def keys(self) -> Counter[str]:
        """All keys, ours and RQ's, by kind: what is unique in a name is left out."""
        return Counter(
            re.sub(r"[0-9a-f]{8,}", "*", key.decode()) for key in self.redis.scan_iter(count=5000)
        )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, demo_cache: Path) -> Iterator[Up]:
    line = CommandLine(tmp_path_factory.mktemp("chaos"), demo_cache)
    line.environment |= {
        "PSIONIC_CSM_RESULT_TTL_MS": "2000",
        "PSIONIC_CSM_METADATA_TTL_MS": "2000",
        "PSIONIC_CSM_CANCEL_MEMORY_MS": "2000",
    }
    with Up(line, "--workers", "2", "--lanes", "2") as up:
        yield up


@pytest.fixture
async def chaos(up: Up) -> Any:
    chaos = Chaos(up)
    await chaos.settled()
    yield chaos
    await chaos.http.aclose()
    chaos.redis.close()


OpenSite = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
def open_site(tmp_path: Path, demo_cache: Path) -> OpenSite:
    """Opens an empty site: Redis alone. When it closes without an error its books must settle."""
    environment = {**os.environ, **noise(demo_cache)}
    artifact = chosen_or_demo(None, lambda _: None, environment)

    @asynccontextmanager
    async def opened(*redis_options: str, **settings: str) -> AsyncIterator[Site]:
        site = Site(tmp_path, artifact, {**SHORT_LIVED, **settings})
        site.open(*redis_options)
        try:
            yield site
            await site.settled()
        finally:
            await site.close()

    return opened
