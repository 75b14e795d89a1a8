"""A deployment over a Redis of its own whose processes a test starts, kills and replaces singly."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from benchmarks.books import Books
from cli.redis_server import find_binary, free_port
from tests.chaos.callers import Callers
from tests.chaos.process import Process
from tests.chaos.wire import Wire
from tests.conftest import RedisServer, until

NAMESPACE: Final = "csm"
START_S: Final = 60.0
SETTLE_S: Final = 60.0
FORGOTTEN_S: Final = 120.0
"""RQ keeps the record of a dead worker for 90 s; what it showed is swept every 30."""
LOOK_S: Final = 0.1
PACED: Final = "benchmarks.paced_worker"

SHORT_LIVED: Final = {
    "PSIONIC_CSM_RESULT_TTL_MS": "2000",
    "PSIONIC_CSM_METADATA_TTL_MS": "2000",
    "PSIONIC_CSM_CANCEL_MEMORY_MS": "2000",
}
"""What is kept for retries goes soon, so that a test can see it go."""


BUSY_S: Final = 3.0
"""What a machine that runs all of this at once, and others' work besides, may add to a promise."""
AUDIBLE_AGAIN_S: Final = 6.0 + BUSY_S
"""The promise: lease, reap and the replay of what was delivered."""


class Site:
    """Redis, and whatever else the test starts. Workers are real; their engine computes nothing.

    While the site is up its books are read ten times a second, and must balance each time.
    """

    def __init__(self, folder: Path, artifact: Path, settings: Mapping[str, str]) -> None:
        (folder / "redis").mkdir()
        self.server = RedisServer(find_binary(), folder / "redis")
        self.callers = Callers()
        self.processes: list[Process] = []
        self.urls: list[str] = []
        self._folder = folder
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("PSIONIC_CSM_") and name != "REDIS_URL"
            },
            "PSIONIC_CSM_REDIS_URL": self.server.url,
            "PSIONIC_CSM_ARTIFACTS": str(artifact),
            "PSIONIC_CSM_NAMESPACE": NAMESPACE,
            "PSIONIC_CSM_DRAIN_GRACE_MS": "10000",
            "PYTHONUNBUFFERED": "1",
            **settings,
        }
        self.redis: redis.Redis = redis.Redis.from_url(self.server.url, socket_timeout=2.0)
        self._watched: redis.Redis = redis.Redis.from_url(self.server.url, socket_timeout=1.0)
        self._wires: list[Wire] = []
        self._faults: list[str] = []
        self._watch: asyncio.Task[None] | None = None

    def open(self, *redis_options: str) -> None:
        self.server.start(*redis_options)
        self._watch = asyncio.create_task(self._look())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        for process in self.processes:
            process.kill()
        for wire in self._wires:
            wire.close()
        await self.callers.close()
        self.server.stop(kill=True)
        self.redis.close()
        self._watched.close()

    async def wire(self) -> tuple[Wire, str]:
        """A wire to Redis, and the URL of Redis through it."""
        wire = Wire(self.server.port)
        self._wires.append(wire)
        return wire, await wire.open()

    @property
    def url(self) -> str:
        return self.urls[0]

    def start(self, name: str, *command: str, **changes: str) -> Process:
        log = self._folder / f"{name}-{len(self.processes)}.log"
        process = Process(name, command, {**self._environment, **changes}, log)
        self.processes.append(process)
        return process

    def scheduler(self) -> Process:
        return self.start("scheduler", "scheduler")

    def worker(
        self,
        *,
        lanes: int = 4,
        step_ms: float = 40,
        module: tuple[str, ...] = (PACED,),
        **changes: str,
    ) -> Process:
        pace = ("--lanes", str(lanes), "--step-ms", str(step_ms))
        return self.start("worker", *module, *pace, **changes)

    def gateway(self, **changes: str) -> Process:
        port = free_port()
        gateway = self.start("gateway", "gateway", PSIONIC_CSM_PORT=str(port), **changes)
        gateway.url = f"http://127.0.0.1:{port}"
        self.urls.append(gateway.url)
        return gateway

    async def ready(self) -> None:
        """Every worker that lives is ready, and every gateway would serve."""
        await until(lambda: len(self.ready_workers()) >= len(self.living("worker")), START_S)
        for gateway in self.living("gateway"):
            await self.serving(gateway.url)

    async def serving(self, url: str, wanted: bool = True) -> None:
        """A gateway says that it would serve, or that it would not."""
        for _ in range(round(START_S / 0.05)):
            if await self.callers.is_ready(url) is wanted:
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"{url} never said {wanted}")

    def living(self, name: str) -> list[Process]:
        return [each for each in self.processes if each.name == name and each.alive]

    def books(self) -> Books:
        """The books as they are now, which must balance whatever has just died."""
        books = Books.read(self.redis, NAMESPACE)
        assert books.faults() == []
        return books

    def ready_workers(self) -> dict[int, dict[str, Any]]:
        """What each ready worker says of itself, by its process id."""
        with suppress(redis.exceptions.RedisError):
            said = Books.read(self.redis, NAMESPACE).workers.values()
            return {int(each["pid"]): each for each in said if each["state"] == "ready"}
        return {}

    def job_of(self, request_id: str) -> dict[str, str]:
        """The record of the job that a request id is bound to, or {}."""
        bound: Any = self.redis.get(f"{NAMESPACE}:request:open:{request_id}")
        if bound is None:
            return {}
        job_id = bound.decode()
        fields: Any = self.redis.hgetall(f"{NAMESPACE}:job:{job_id}")
        said = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
        return {"job_id": job_id, **said} if said else {}

    def events_of(self, request_id: str) -> tuple[str, int]:
        """The last id and the length of the events of a request's job."""
        stream = f"{NAMESPACE}:events:{self.job_of(request_id)['job_id']}"
        found: Any = self.redis.xinfo_stream(stream)
        return found["last-generated-id"].decode(), int(found["length"])

    def speaker_of(self, request_id: str) -> Process:
        """The worker that has the job of a request."""
        worker_id = self.job_of(request_id)["worker_id"]
        pid = int(Books.read(self.redis, NAMESPACE).workers[worker_id]["pid"])
        return next(process for process in self.processes if process.pid == pid)

    async def running(self, count: int) -> None:
        """So many jobs are being spoken."""
        await until(lambda: self._count("running") >= count, SETTLE_S)

    async def waiting(self, count: int) -> None:
        await until(lambda: self._count("waiting") >= count, SETTLE_S)

    async def settled(self) -> None:
        """Nothing waits or runs, lanes and listeners agree, and everybody who lives serves.

        Fails too if the books were wrong at any moment since the site was opened.
        """
        doubts: list[str] = ["nothing was read"]

        def quiet() -> bool:
            with suppress(redis.exceptions.RedisError):
                books = self.books()
                doubts[:] = [] if books.idle else [f"not idle: {books.live}"]
                doubts.extend(books.unsettled(waiters=0).values())
            return not doubts

        await until(quiet, SETTLE_S, lambda: f"not settled: {doubts}")
        assert self._faults == []
        if self.living("worker") and self.living("gateway"):
            await self.ready()

    def keys(self) -> Counter[str]:
        """All keys, ours and RQ's, by kind: what is unique in a name is left out."""
        return Counter(
            re.sub(r"[0-9]+-[0-9a-f]{8}|[0-9a-f]{8,}", "*", key.decode())
            for key in self.redis.scan_iter(count=5000)
        )

    async def baseline(self) -> Counter[str]:
        """The keys of a deployment that has spoken at every gateway, and of which that is gone."""
        await asyncio.gather(*(self.callers.speak(url, 5) for url in self.urls))
        await self.settled()
        await until(lambda: not any(":job:" in key for key in self.keys()), SETTLE_S)
        return self.keys()

    async def back_to(self, baseline: Counter[str]) -> None:
        """Whatever has happened since is forgotten: no key is there that wasn't."""
        await until(
            lambda: not self.keys() - baseline, FORGOTTEN_S, lambda: str(self.keys() - baseline)
        )

    def _count(self, state: str) -> int:
        with suppress(redis.exceptions.RedisError):
            books = self.books()
            return sum(map(len, (books.waiting if state == "waiting" else books.running).values()))
        return 0

    async def _look(self) -> None:
        while True:
            with suppress(redis.exceptions.RedisError):
                books = await asyncio.to_thread(Books.read, self._watched, NAMESPACE)
                self._faults += books.faults()
            await asyncio.sleep(LOOK_S)
