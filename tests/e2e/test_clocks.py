"""Processes whose wall clocks are hours apart: nobody notices, since no rule asks them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import redis

from benchmarks.books import Books, check
from cli.bench_stack import PacedPlan, paced_stack
from cli.stack import Stack
from tests.conftest import until
from tests.e2e.stacks import demo_cache

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(120)]

HOUR_MS: Final = 3_600_000
SKEWED_CLOCK: Final = """
import datetime, sys, time

HOURS = {"gateway": 1, "benchmarks.paced_worker": -1, "scheduler": 5}
hours = next((HOURS[word] for word in sys.orig_argv if word in HOURS), 0)
real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime
time.time = lambda: real_time() + 3600 * hours
time.time_ns = lambda: real_time_ns() + 3600 * hours * 10**9


class Skewed(real_datetime):
    @classmethod
    def now(cls, tz=None):
        return real_datetime.now(tz) + datetime.timedelta(hours=hours)

    @classmethod
    def utcnow(cls):
        return real_datetime.utcnow() + datetime.timedelta(hours=hours)


if hours:
    datetime.datetime = Skewed
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, demo_cache: Path) -> Iterator[Stack]:
    """Two gateways an hour ahead, two workers an hour behind, a scheduler five hours ahead."""
    folder = tmp_path_factory.mktemp("skew")
    (folder / "sitecustomize.py").write_text(SKEWED_CLOCK)
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "PSIONIC_CSM_CACHE": str(demo_cache)}
    plan = PacedPlan(
        workers=2,
        lanes=2,
        step_ms=40,
        gateways=2,
        settings={"PSIONIC_CSM_RESULT_TTL_MS": "2000", "PSIONIC_CSM_CANCEL_MEMORY_MS": "2000"},
    )
    with paced_stack(plan, environment=environment) as stack:
        yield stack


@pytest.fixture
def books(stack: Stack) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(stack.redis_url) as client:
        yield client


async def speak(url: str, request_id: str, **body: Any) -> httpx.Response:
    asked = {"input": "What time is it?", "max_audio_length_ms": 2400, **body}
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as http:
        return await http.post("/psionic/csm/speech", json={"request_id": request_id, **asked})


def digest(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-psionic-csm-pcm16-sha256"]


def test_the_clocks_do_differ(stack: Stack) -> None:
    """What a worker says of its start is an hour ago: the tests below are of what they claim."""
    said = httpx.get(f"{stack.url}/psionic/csm/worker/metadata", trust_env=False).json()

    loaded_ms = said["runtime"]["loaded_at_unix_ms"]
    assert -1.5 * HOUR_MS < loaded_ms - time.time() * 1000 < -0.5 * HOUR_MS
    assert all(0 <= worker["heartbeat_age_ms"] < 10_000 for worker in said["workers"])


async def test_everybody_is_served_through_either_gateway(stack: Stack) -> None:
    """In time, by either worker, with true waits; a retry through the other is a replay."""
    ids = [uuid4().hex for _ in range(6)]
    answers = await asyncio.gather(
        *(speak(stack.urls[number % 2], id_, seed=7) for number, id_ in enumerate(ids))
    )

    assert len({digest(answer) for answer in answers}) == 1
    for answer in answers:
        assert 0 <= int(answer.headers["x-psionic-csm-queue-wait-ms"]) < 20_000
    again = await speak(stack.urls[1], ids[0], seed=7)
    assert again.headers["x-psionic-csm-replayed"] == "true"


async def test_a_deadline_is_met_and_not_by_hours_off(stack: Stack) -> None:
    """What can't be done in time ends at its deadline: neither at once nor in an hour."""
    began = time.monotonic()
    answer = await speak(stack.url, uuid4().hex, timeout_ms=1000, max_audio_length_ms=8000)

    assert answer.status_code == 504
    assert 0.9 < time.monotonic() - began < 5


async def test_a_cancel_is_remembered_and_then_forgotten(stack: Stack) -> None:
    """For as long as is set, on Redis's clock."""
    id_ = uuid4().hex
    body = {"request_id": id_}
    async with httpx.AsyncClient(base_url=stack.url, timeout=30, trust_env=False) as http:
        assert (await http.post("/psionic/csm/cancellations", json=body)).json()["remembered"]
    assert (await speak(stack.urls[1], id_)).json()["error"]["code"] == "cancelled"
    await asyncio.sleep(2.1)
    assert (await speak(stack.urls[1], id_)).status_code == 200


async def test_a_killed_workers_lease_lapses_in_its_time(stack: Stack, books: redis.Redis) -> None:
    """No lease of the living lapses by a clock that is ahead, and those of the dead do."""
    calls = [
        asyncio.create_task(speak(stack.url, uuid4().hex, seed=7, timeout_ms=30_000))
        for _ in range(4)
    ]
    await until(lambda: sum(map(len, Books.read(books, "csm").running.values())) == 4)
    pid = stack.supervisor.pid("worker-1")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    answers = await asyncio.gather(*calls)

    assert len({digest(answer) for answer in answers}) == 1
    attempts = sorted(answer.headers["x-psionic-csm-attempt"] for answer in answers)
    assert attempts == ["1", "1", "2", "2"]
    assert check(books, "csm", settle_s=20).balanced
