"""Somebody overwrites a key that all jobs share, while people are being spoken to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest
import redis

from benchmarks.books import Books, check
from cli.bench_stack import PacedPlan, paced_stack
from cli.stack import Stack
from tests.conftest import until
from tests.e2e.stacks import demo_cache, noise

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

OF_A_QUEUE: Final = ("waiting", "running", "ring", "line", "stats", "lanes", "ended")
OF_ALL: Final = ("queues", "workers", "gateways", "reaper")
WORKERS: Final = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def stack(demo_cache: Path) -> Iterator[Stack]:
    plan = PacedPlan(workers=2, lanes=2, step_ms=20)
    with paced_stack(plan, environment={**os.environ, **noise(demo_cache)}) as up:
        yield up


async def speak(url: str) -> int:
    body = {
        "request_id": uuid4().hex,
        "input": "Whatever happens.",
        "max_audio_length_ms": 2400,
        "timeout_ms": 30_000,
    }
    async with httpx.AsyncClient(base_url=url, timeout=40, trust_env=False) as http:
        return (await http.post("/psionic/csm/speech", json=body)).status_code


@pytest.mark.parametrize("name", [*OF_A_QUEUE, *OF_ALL])
async def test_junk_in_a_shared_key_costs_nobody_a_word(stack: Stack, name: str) -> None:
    """No worker dies of it, everybody is spoken to, and the books balance."""
    before = [stack.supervisor.pid(worker) for worker in WORKERS]
    with redis.Redis.from_url(stack.redis_url) as client:
        callers = [asyncio.create_task(speak(stack.url)) for _ in range(8)]
        await until(lambda: sum(map(len, Books.read(client, "csm").running.values())) == 4)
        queue = next(iter(Books.read(client, "csm").running))
        key = {"line": f"csm:line:{queue}:interactive:open"}.get(name, f"csm:{name}:{queue}")
        client.set(f"csm:{name}" if name in OF_ALL else key, "junk")

        assert set(await asyncio.gather(*callers)) == {200}
        verdict = await asyncio.to_thread(check, client, "csm", 20)

    assert verdict.faults + verdict.differences == []
    assert [stack.supervisor.pid(worker) for worker in WORKERS] == before
