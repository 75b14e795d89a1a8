"""The real application on a real socket over a fake Redis, with a worker that speaks at once."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import fakeredis
import uvicorn
from starlette.types import ASGIApp

from gateway.app import create_gateway
from gateway.protocol import BoundedHttp
from scheduler.queue import Claim
from shared.governance.artifacts import ArtifactRegistry
from shared.settings import GatewaySettings
from tests.conftest import as_redis_7
from tests.gateway.artifacts import write_artifact
from tests.gateway.world import Worker

WAIT_S = 20.0
FRAMES = 2
LONG = 10


@dataclass
class Service:
    url: str
    document: dict[str, Any]


class SpeakingWorker:
    """Takes each job when its hint comes and ends it after a few frames, in a thread.

    With ``breath_s`` it speaks a long one to its last frame, with so long between two.
    """

    def __init__(self, worker: Worker, breath_s: float | None = None) -> None:
        self._worker = worker
        self._breath_s = breath_s
        self._ended = threading.Event()
        self._hinted = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def push(self, queue: str, job_id: str) -> None:
        self._hinted.release()

    def start(self) -> None:
        self._worker.beat(lanes=8)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._hinted.acquire(timeout=0.5):
                self._speak()
            self._worker.beat(lanes=8)

    def _speak(self) -> None:
        claim = self._worker.queue.claim(uuid4().hex)
        if isinstance(claim, Claim):
            if self._breath_s is not None and claim.job.max_frames > LONG:
                self._speak_long(claim, self._breath_s)
                return
            frames = min(FRAMES, claim.job.max_frames)
            verdicts = self._worker.post(claim, *range(frames))
            if verdicts[-1:] == ["ok"]:
                self._worker.end(claim, frames)

    def _speak_long(self, claim: Claim, breath_s: float) -> None:
        for index in range(claim.job.max_frames):
            if self._worker.post(claim, index) != ["ok"]:
                self._worker.end(claim, index, "cancelled", failure_code="cancelled")
                return
            self._ended.wait(breath_s)
        self._worker.end(claim, claim.job.max_frames, "length")


@contextmanager
def served(
    directory: Path,
    settings: GatewaySettings,
    *,
    wrapped: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    breath_s: float | None = None,
    has_worker: bool = True,
) -> Iterator[Service]:
    """``wrapped`` puts something between the application and its callers.

    Without ``has_worker`` nobody takes a job.
    """
    artifact = write_artifact(directory / "artifact")
    server = fakeredis.FakeServer(version=(7, 0, 0))
    worker = SpeakingWorker(
        Worker(as_redis_7(fakeredis.FakeRedis(server=server)), settings, artifact), breath_s
    )
    if has_worker:
        worker.start()
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio leaves out TCP_NODELAY
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    started = threading.Event()
    servers: list[uvicorn.Server] = []
    documents: list[dict[str, Any]] = []

    async def run() -> None:
        gateway = create_gateway(
            settings,
            registry=ArtifactRegistry([artifact]),
            redis=fakeredis.FakeAsyncRedis(server=server),
            blocking_redis=fakeredis.FakeAsyncRedis(server=server),
            push=worker.push,
        )
        config = uvicorn.Config(
            wrapped(gateway.app), http=BoundedHttp, ws="none", lifespan="on", log_config=None
        )
        servers.append(uvicorn.Server(config))
        documents.append(gateway.document)
        started.set()
        await servers[0].serve([listener])

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert started.wait(WAIT_S)
    try:
        yield Service(f"http://127.0.0.1:{listener.getsockname()[1]}", documents[0])
    finally:
        servers[0].should_exit = True
        thread.join(WAIT_S)
        if has_worker:
            worker.close()
        listener.close()
