"""People who ask for speech, and what each of them heard and when."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4
from zlib import crc32

import httpx

from benchmarks.paced import pcm_of
from shared.wav import FRAME_BYTES, FRAME_MS

WAV_HEAD: Final = 44
JSONL: Final = "jsonl_base64"
RAW: Final = "audio"
BROKEN: Final = "connection_broken"


@dataclass(slots=True)
class Heard:
    """One caller's answer so far. ``times`` is when each piece of audio arrived."""

    request_id: str
    status: int = 0
    code: str | None = None
    pcm: bytes = b""
    times: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0

    @property
    def seed(self) -> int:
        """Each request's own, so that nobody's frames pass for another's."""
        return crc32(self.request_id.encode())

    def undisturbed(self, frames: int) -> bytes:
        """The samples of its answer if nothing happened to it."""
        return b"".join(pcm_of(self.seed, index) for index in range(frames))

    @property
    def gap_s(self) -> float:
        """The longest silence between two pieces."""
        return max((later - earlier for earlier, later in pairwise(self.times)), default=0.0)

    @property
    def first_s(self) -> float:
        return self.times[0] - self.began

    @property
    def frames(self) -> int:
        return len(self.pcm) // FRAME_BYTES

    @property
    def attempt(self) -> int:
        return int(self.facts.get("attempt") or 0)

    @property
    def total_s(self) -> float:
        return self.ended - self.began

    def take(self, pcm: bytes) -> None:
        self.pcm += pcm
        self.times.append(time.monotonic())


def asked(frames: int, **more: Any) -> dict[str, Any]:
    """A request for so many frames."""
    return {
        "input": "Hello.",
        "max_audio_length_ms": frames * FRAME_MS,
        "timeout_ms": 30_000,
        **more,
    }


class Callers:
    """Everybody who calls, over one HTTP client."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=3000, max_keepalive_connections=0)
        self.http = httpx.AsyncClient(timeout=60, trust_env=False, limits=limits)

    async def close(self) -> None:
        await self.http.aclose()

    async def speak(
        self,
        url: str,
        frames: int,
        *,
        stream: str | None = None,
        heard: Heard | None = None,
        on_audio: Callable[[Heard], None] = lambda _: None,
        **more: Any,
    ) -> Heard:
        """Ask and hear the answer out. ``heard`` fills up on the way; it names the request, too."""
        named = heard.request_id if heard else uuid4().hex
        request_id = more.pop("request_id", None) or named
        heard = heard or Heard(request_id)
        heard.began = time.monotonic()
        body = asked(frames, request_id=request_id, seed=heard.seed, **more)
        if stream is not None:
            body |= {"stream": True, "stream_format": stream}
        if stream == RAW:
            body |= {"response_format": "pcm"}
        try:
            async with self.http.stream("POST", f"{url}/psionic/csm/speech", json=body) as answer:
                heard.status = answer.status_code
                await _hear(answer, stream, heard, on_audio)
        except httpx.TransportError:
            heard.code = BROKEN
        heard.ended = time.monotonic()
        return heard

    def speaking(self, url: str, frames: int, **more: Any) -> asyncio.Task[Heard]:
        """As ``speak``, in the background."""
        return asyncio.create_task(self.speak(url, frames, **more))

    async def cancel(self, url: str, **body: str) -> bool:
        """Whether the cancel was taken; if not, Redis or the gateway is away."""
        try:
            answer = await self.http.post(f"{url}/psionic/csm/cancellations", json=body)
        except httpx.TransportError:
            return False
        assert answer.status_code in (202, 503)
        return answer.status_code == 202

    async def is_ready(self, url: str) -> bool:
        try:
            return (await self.http.get(f"{url}/health/ready")).status_code == 200
        except httpx.TransportError:
            return False


async def _hear(
    answer: httpx.Response, stream: str | None, heard: Heard, on_audio: Callable[[Heard], None]
) -> None:
    if answer.status_code != 200:
        heard.code = json.loads(await answer.aread())["error"]["code"]
    elif stream == JSONL:
        await _hear_lines(answer.aiter_lines(), heard, on_audio)
    elif stream == RAW:
        async for piece in answer.aiter_raw():
            heard.take(piece)
            on_audio(heard)
    else:
        wav = await answer.aread()
        heard.take(wav[WAV_HEAD:])
        heard.facts = {"attempt": answer.headers["x-psionic-csm-attempt"]}
        heard.facts["worker_id"] = answer.headers["x-psionic-csm-worker-id"]
        heard.facts["replayed"] = answer.headers.get("x-psionic-csm-replayed") == "true"


async def _hear_lines(
    lines: AsyncIterator[str], heard: Heard, on_audio: Callable[[Heard], None]
) -> None:
    async for line in lines:
        event = json.loads(line)
        assert not heard.facts, "something after the last event"
        if event["event"] == "audio":
            assert event["chunk_index"] == heard.frames, "a gap or a repeat"
            heard.take(base64.b64decode(event["data_base64"])[WAV_HEAD:])
            on_audio(heard)
        elif event["event"] in ("terminal", "error"):
            heard.facts = event
            heard.code = event["error"]["code"] if event["event"] == "error" else None
    if not heard.facts:
        heard.code = BROKEN
