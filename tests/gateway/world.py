"""A gateway over a fake Redis, a worker that a test directs, and a client that may hang up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
import redis.asyncio
from starlette.types import ASGIApp

from gateway.app import create_gateway
from scheduler.carrier import Carrier
from scheduler.queue import Claim, LanePost, WorkQueue
from shared.digests import CodebookDigest, Pcm16Digest, wav_pcm16_digest
from shared.governance.artifacts import Artifact, ArtifactRegistry
from shared.keys import Keys
from shared.messages import FrameRecord, Terminal
from shared.settings import GatewaySettings
from tests.gateway.artifacts import write_artifact
from tests.scheduler.conftest import terminal

PATIENCE_S = 30.0
TIMEOUT_MS = 2500
"""Of a caller whose job is to be claimed before its time is over, on however busy a machine."""
LEASE_MS = 60_000
"""Of a worker that beats and renews only when a test tells it to, on however busy a machine."""
SPEECH = "/psionic/csm/speech"


def gateway_settings(env: Mapping[str, str] | None = None, **queue: Any) -> GatewaySettings:
    settings = GatewaySettings.from_env({"PSIONIC_CSM_NAMESPACE": "t", **(env or {})})
    return replace(settings, queue=replace(settings.queue, **queue))


def pcm(index: int) -> bytes:
    """Frame ``index`` of every scripted voice."""
    return bytes([index % 251, 1]) * 1920


def codes(index: int) -> bytes:
    return bytes([index % 251, 0]) * 32


def worker_document(artifact: Artifact, **changes: Any) -> dict[str, Any]:
    return {
        "worker_id": "w1",
        "host": "box",
        "pid": 7,
        "state": "ready",
        "requested_backend": "cpu",
        "served_backend": "cpu",
        "execution_engine": "torch_csm_cpu",
        "accelerated_backend": "unavailable_fail_closed",
        "residency": "warm_cpu",
        "gpu_model": "none",
        "gpu_model_label": "not_configured",
        "artifact_id": artifact.artifact_id,
        "artifact_digest": artifact.digest,
        "lanes": 2,
        "in_flight": 0,
        "memory_required_bytes": 1,
        "memory_used_bytes": 2,
        "utilization": None,
        "loaded_at_unix_ms": 3,
        "load_latency_ms": 4,
        "tokenizer_loaded": True,
        "csm_config_loaded": True,
        "csm_model_loaded": True,
        "mimi_loaded": True,
        "refusal": None,
        "cpu_fallback_reason": None,
        "image_ref": "image@1",
        "determinism_class": "test",
        **changes,
    }


class Worker:
    """A worker's side of one artifact's queue, one step at a time."""

    def __init__(
        self, client: redis.Redis, settings: GatewaySettings, artifact: Artifact, id_: str = "w1"
    ) -> None:
        self.artifact = artifact
        patient = replace(settings.queue, lease_ms=LEASE_MS)
        queue = artifact.queue_name(patient.namespace)
        carrier = Carrier(client, patient.namespace, queue)
        self.id = id_
        self.queue = WorkQueue(client, patient, carrier, queue, id_)
        self.hints: asyncio.Queue[str] = asyncio.Queue()

    def beat(self, *, lanes: int = 2, **changes: Any) -> None:
        document = worker_document(self.artifact, worker_id=self.id, **changes)
        self.queue.heartbeat(document, lanes=lanes)

    async def claim(self) -> Claim:
        """The next job, once its hint has come."""
        async with asyncio.timeout(PATIENCE_S):
            hint = await self.hints.get()
        claim = self.queue.claim(uuid4().hex, hint=hint)
        assert isinstance(claim, Claim)
        return claim

    def post(self, claim: Claim, *indexes: int) -> list[str]:
        frames = [FrameRecord(index, codes(index), pcm(index)) for index in indexes]
        posts = [LanePost(claim.job_id, claim.execution, frame) for frame in frames]
        return [verdict for post in posts for verdict in self.queue.post([post])]

    def verdict(self, claim: Claim) -> str:
        """What the queue says to a lane that asks only whether to go on."""
        return self.queue.post([LanePost(claim.job_id, claim.execution, None)])[0]

    def end(
        self,
        claim: Claim,
        frames: int,
        reason: str = "stop",
        cause: str | None = "eos",
        **more: Any,
    ) -> None:
        terminal = statement(frames, reason, cause if reason == "stop" else None, **more)
        outcome = self.queue.end(claim.job_id, claim.execution, terminal)
        assert outcome.verdict == "ended"

    async def speak(self, frames: int, **how: Any) -> Claim:
        claim = await self.claim()
        self.post(claim, *range(frames))
        self.end(claim, frames, **how)
        return claim


def statement(frames: int, reason: str, cause: str | None, **changes: Any) -> Terminal:
    """What an honest worker states of scripted frames."""
    codebooks, samples = CodebookDigest(), Pcm16Digest()
    for index in range(frames):
        codebooks.update(codes(index))
        samples.update(pcm(index))
    honest = terminal(
        reason,
        stop_cause=cause,
        generated_frame_count=frames,
        prompt_frame_count=130,
        codebook_frames_sha256=str(codebooks) if frames else None,
        pcm16_sha256=str(samples) if frames else None,
        wav_pcm16_digest=wav_pcm16_digest(map(pcm, range(frames))) if frames else None,
        runtime_image_ref="image@1",
    )
    return replace(honest, **changes)


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json()["error"])

    @property
    def code(self) -> str:
        return str(self.error["code"])


class Call:
    """One request that is under way: hear its answer part by part, or hang up."""

    def __init__(self, app: ASGIApp, method: str, path: str, headers: dict[str, str], body: bytes):
        self._heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._body: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._body.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.finished = False
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
            "headers": [(k.lower().encode(), v.encode("utf-8")) for k, v in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._body.get, self._send)
        finally:
            self._heard.put_nowait(None)

    async def _send(self, message: Any) -> None:
        self._heard.put_nowait(message)

    async def _next(self) -> dict[str, Any] | None:
        async with asyncio.timeout(PATIENCE_S):
            return await self._heard.get()

    async def start(self) -> tuple[int, dict[str, str]]:
        message = await self._next()
        if message is None:
            await self.task
            raise AssertionError("no answer")
        assert message["type"] == "http.response.start"
        headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        return message["status"], headers

    async def part(self) -> bytes:
        """The next piece of the body; empty when the answer is over, one way or another."""
        message = await self._next()
        if message is None:
            return b""
        self.finished = not message.get("more_body", False)
        return bytes(message["body"])

    async def answer(self) -> Answer:
        status, headers = await self.start()
        body = b""
        while not self.finished and (piece := await self.part()):
            body += piece
        return Answer(status, headers, body)

    async def hang_up(self) -> None:
        self._body.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(PATIENCE_S):
            await self.task


@dataclass
class World:
    """One gateway, its worker, its Redis."""

    settings: GatewaySettings
    redis: redis.Redis
    artifact: Artifact
    app: ASGIApp
    gateway: Any
    worker: Worker
    keys: Keys
    calls: list[Call] = field(default_factory=list)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Call:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        call = Call(self.app, method, path, sent, data)
        self.calls.append(call)
        return call

    def post(self, body: Any = None, path: str = SPEECH, **more: Any) -> Call:
        return self.call("POST", path, body, **more)

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.call("GET", path, **more).answer()

    async def refused(self, body: Any = None, path: str = SPEECH, **more: Any) -> Answer:
        return await self.post(body, path, **more).answer()

    def redis_keys(self) -> set[bytes]:
        """All keys but those by which the gateway itself says that it lives."""
        keys: Any = self.redis.keys("*")
        return {key for key in keys if not key.startswith(b"t:gateway")}

    def state(self, job_id: str) -> str | None:
        value: Any = self.redis.hget(self.keys.job(job_id), "state")
        return value.decode() if value else None

    def field(self, job_id: str, name: str) -> str | None:
        value: Any = self.redis.hget(self.keys.job(job_id), name)
        return value.decode() if value else None


@asynccontextmanager
async def running(
    settings: GatewaySettings,
    directory: Path,
    client: redis.Redis,
    aclient: redis.asyncio.Redis,
    blocking: redis.asyncio.Redis,
    **parts: Any,
) -> AsyncIterator[World]:
    """A started gateway with one ready worker."""
    artifact = write_artifact(directory / "artifact")
    worker = Worker(client, settings, artifact)
    loop = asyncio.get_running_loop()

    def push(queue: str, job_id: str) -> None:
        loop.call_soon_threadsafe(worker.hints.put_nowait, job_id)

    gateway = create_gateway(
        settings,
        **{
            "registry": ArtifactRegistry([artifact]),
            "redis": aclient,
            "blocking_redis": blocking,
            "push": push,
            **parts,
        },
    )
    gateway.facts.fresh_ms = 0.0  # tests look at what they have just done
    gateway.facts.label_wait_s = PATIENCE_S  # however busy the machine
    app = gateway.app
    worker.beat()
    async with app.router.lifespan_context(app):
        world = World(
            settings, client, artifact, app, gateway, worker, Keys(settings.queue.namespace)
        )
        yield world
        for call in world.calls:
            call.task.cancel()
        await asyncio.gather(*(call.task for call in world.calls), return_exceptions=True)
