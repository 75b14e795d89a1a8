"""A gateway as a process over a real Redis, and a worker that the test directs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import redis

from scheduler.carrier import Carrier
from scheduler.queue import Claim
from scheduler.reaper import Reaper
from shared.governance.artifacts import Artifact
from shared.keys import Keys
from tests.conftest import RedisServer, redis_in
from tests.gateway.artifacts import write_artifact
from tests.gateway.world import PATIENCE_S, SPEECH, Worker, gateway_settings


class Process:
    """A gateway process and a worker that the test directs."""

    def __init__(self, server: RedisServer, artifact: Artifact, **variables: str) -> None:
        self.server = server
        environment = {
            **os.environ,
            "PSIONIC_CSM_REDIS_URL": server.url,
            "PSIONIC_CSM_NAMESPACE": "t",
            "PSIONIC_CSM_PORT": "0",
            "PSIONIC_CSM_ARTIFACTS": str(artifact.directory),
            **variables,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway"], env=environment, stdout=subprocess.PIPE, text=True
        )
        self.lines: list[dict[str, Any]] = []
        url = self._read_until("gateway_listening")["url"]
        self._reading = threading.Thread(target=self._read_on, daemon=True)
        self._reading.start()
        limits = httpx.Limits(max_connections=200)
        self.http = httpx.Client(base_url=url, timeout=40, trust_env=False, limits=limits)
        self._redis = server.client()
        self.worker = Worker(self._redis, gateway_settings(), artifact)
        self._carrier = Carrier(self._redis, "t", artifact.queue_name("t"))
        self.worker.beat()

    def _read_until(self, event: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == event:
                return dict(line)
        raise AssertionError(self.lines)

    def _read_on(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(json.loads(text) for text in self._process.stdout)

    def claim_hint(self) -> str:
        """The id of the next job, as RQ hands it over; nobody claims it."""
        deadline = time.monotonic() + PATIENCE_S
        while (hint := self._carrier.pull(1)) is None:
            assert time.monotonic() < deadline, "no job came"
        return hint

    def redis_answers(self) -> bool:
        try:
            return bool(self._redis.ping())
        except redis.exceptions.RedisError:
            return False

    def claim(self) -> Claim:
        """The next job, as RQ hands it over."""
        hint = self.claim_hint()
        claim = self.worker.queue.claim(uuid4().hex, hint=hint)
        assert isinstance(claim, Claim)
        return claim

    @property
    def pid(self) -> int:
        return self._process.pid

    def keys(self, pattern: str) -> list[bytes]:
        """The keys of this deployment that match."""
        found: Any = self._redis.keys(f"t:{pattern}")
        return list(found)

    def admitted(self) -> int:
        """Jobs that ever were let in."""
        found: Any = self._redis.hget(
            Keys("t").stats(self.worker.artifact.queue_name("t")), "admitted"
        )
        return int(found or 0)

    def listeners(self, claim: Claim) -> list[bytes]:
        """Who listens to a job."""
        members: Any = self._redis.zrange(Keys("t").listeners(claim.job_id), 0, -1)
        return list(members)

    def reap(self) -> None:
        Reaper(self._redis, gateway_settings().queue).reap()

    def post(self, body: Any, **more: Any) -> httpx.Response:
        return self.http.post(SPEECH, json=body, **more)

    def signal(self, signum: int) -> None:
        self._process.send_signal(signum)

    def exit_status(self, timeout_s: float = PATIENCE_S) -> int:
        return self._process.wait(timeout_s)

    def close(self) -> None:
        self.http.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._redis.close()


@contextmanager
def process_in(folder: Path, **variables: str) -> Iterator[Process]:
    """A gateway with these variables over a Redis of its own, whose files are in ``folder``."""
    (folder / "redis").mkdir()
    with redis_in(folder / "redis") as server:
        process = Process(server, write_artifact(folder / "artifact"), **variables)
        yield process
        process.close()
