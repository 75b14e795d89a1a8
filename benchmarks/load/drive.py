"""The callers of one phase: each comes at its moment, whatever became of those before."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.client import BROKEN, Caller, Reply
from benchmarks.load.arrivals import Arrival
from benchmarks.load.records import Call
from shared.paths import SPEECH
from shared.wav import FRAME_MS

PATIENCE_S: Final = 5.0
"""Beyond a call's own timeout, until the caller gives up on an answer."""


async def drive(
    caller: Caller, arrivals: Sequence[Arrival], name: str, began: float
) -> tuple[tuple[Call, ...], list[float]]:
    """Send them all and wait for all answers. And the gaps between two frames, of every call."""
    gaps_s: list[float] = []
    calls = [
        asyncio.create_task(_call(caller, each, f"{name}-{number}", began, gaps_s))
        for number, each in enumerate(arrivals)
    ]
    return tuple(await asyncio.gather(*calls)), gaps_s


async def _call(
    caller: Caller, arrival: Arrival, request_id: str, began: float, gaps_s: list[float]
) -> Call:
    await asyncio.sleep(max(0.0, began + arrival.at_s - time.perf_counter()))
    sent = time.perf_counter()
    reply = await _answer(caller, arrival, request_id)
    total_s = time.perf_counter() - sent
    late_s = sent - began - arrival.at_s
    if reply.status != 200:
        return _of(arrival, late_s, reply, reply.code, total_s=total_s)
    last = json.loads(reply.body.rstrip().rsplit(b"\n", 1)[-1])
    audio_at = reply.lines_at[1:-1]  # between the start and the terminal
    gaps_s += [later - earlier for earlier, later in pairwise(audio_at)]
    wait_ms, whole_ms = last.get("queue_wait_ms"), last.get("full_generation_latency_ms")
    return _of(
        arrival,
        late_s,
        reply,
        last.get("failure_code"),
        finish_reason=last.get("finish_reason"),
        first_audio_s=audio_at[0] - sent if audio_at else None,
        total_s=total_s,
        queue_wait_s=None if wait_ms is None else wait_ms / 1000,
        service_s=None if None in (wait_ms, whole_ms) else (whole_ms - wait_ms) / 1000,
        spoken_frames=int(last.get("generated_frame_count") or 0),
    )


def _of(arrival: Arrival, late_s: float, reply: Reply, code: str | None, **more: Any) -> Call:
    status = reply.status
    return Call(arrival.at_s, late_s, arrival.frames, arrival.timeout_s, status, code, **more)


async def _answer(caller: Caller, arrival: Arrival, request_id: str) -> Reply:
    body = {
        "input": arrival.text,
        "request_id": request_id,
        "max_audio_length_ms": arrival.frames * FRAME_MS,
        "timeout_ms": round(arrival.timeout_s * 1000),
        "stream": True,
        "stream_format": "jsonl_base64",
    }
    try:
        async with asyncio.timeout(arrival.timeout_s + PATIENCE_S):
            return await caller.post(SPEECH, body)
    except (OSError, TimeoutError):
        return Reply(BROKEN)
