"""A worker and a reaper whatever Redis says, or answers in its place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import redis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from cli.redis_server import refusal
from gpu_worker.for_show import for_show
from gpu_worker.worker import DRAINED, REDIS_REFUSED
from scheduler.connections import connect
from scheduler.link import Link
from scheduler.metrics import QueueMetrics
from scheduler.reaper import Reaper
from tests.conftest import RedisServer, until
from tests.crooked import GARBAGE, ODD, REFUSALS, CrookedWire
from tests.gpu_worker.jobs import SEED, admit
from tests.gpu_worker.worker_stage import (
    RunningWorker,
    ScriptedRuntime,
    Stage,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import Deployment, over_real, queue_settings

pytestmark = pytest.mark.redis

WRONG = {
    "a cluster",
    "a cluster that moves",
    "slots",
    "too old",
    "another type",
    "nothing said",
    "no text",
}
"""What doesn't pass by itself: the worker ends with its code, and its jobs go back."""
PASSING = {name: reply for name, reply in (REFUSALS | GARBAGE | ODD).items() if name not in WRONG}
LONG = 100_000


WAITED_FOR = ("busy", "made a replica", "no script", "http", "a tower", *ODD)
"""Of them, what matters most to who waits for an id."""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker looks round at once, and tries a Redis that was away again at once."""
    monkeypatch.setattr("gpu_worker.worker.IDLE_WAIT_S", 0.01)
    monkeypatch.setattr("gpu_worker.worker.BUSY_WAIT_S", 0.005)
    monkeypatch.setattr("scheduler.link.FIRST_PAUSE_MS", 0.0)


@pytest.fixture
async def books(redis_server: RedisServer) -> AsyncIterator[Deployment]:
    settings = queue_settings(
        lease_ms=60_000, renew_ms=20, reap_interval_ms=20, listener_ttl_ms=600_000
    )
    async with over_real(redis_server, settings) as books:
        books.redis.config_set("hz", 200)  # so often it looks whether a wait is over
        yield books


@pytest.fixture
async def crooked(wire: CrookedWire) -> AsyncIterator[redis.Redis]:
    """A worker's client over that wire."""
    with connect(await wire.open(), timeout_s=0.5) as client:
        yield client


@contextmanager
def running(stage: Stage) -> Iterator[RunningWorker]:
    life = stage.run()
    try:
        yield life
    finally:
        life.end()


async def answered(wire: CrookedWire, name: str) -> None:
    """Some questions get this in place of an answer; then a round of the worker's goes well."""
    wrong, scripts = 0, 0

    def crook(command: str, reply: bytes) -> bytes:
        nonlocal wrong, scripts
        if wrong < 3:
            wrong += 1
            return PASSING[name]
        scripts += command == "EVALSHA"
        return reply

    wire.answer = crook
    await until(lambda: scripts >= 6, why=lambda: f"it does not go on after {name}")
    wire.answer = None


@pytest.mark.parametrize("is_busy", [True, False], ids=["speaking", "idle"])
@pytest.mark.usefixtures("hurried")
async def test_a_worker_outlives_every_reply(
    books: Deployment, wire: CrookedWire, crooked: redis.Redis, is_busy: bool
) -> None:
    """It goes on where it was with each true answer: no frame is lost or written twice, no lease
    is given up, and its log says little.
    """
    stage = Stage(crooked, books.settings, ScriptedRuntime(plays=True, pace_s=0.01))
    with capture_logs() as logs, running(stage) as life:
        job_id = await admit(books, max_frames=LONG, timeout_ms=300_000) if is_busy else ""
        for name in PASSING if is_busy else WAITED_FOR:
            await answered(wire, name)
        if not is_busy:
            job_id = await admit(books, max_frames=LONG, timeout_ms=300_000)
            await until(lambda: books.redis.xlen(books.keys.events(job_id)) > 5)
        stage.signals.count = 2
        assert await asyncio.to_thread(life.wait) == DRAINED

    heard = stream_of(books, job_id)
    frames = [entry for entry in heard if not isinstance(entry, str)]
    assert heard[:1] == ["claimed"]
    assert frames == [record_of(SEED, index) for index in range(len(frames))]
    assert (books.state(job_id), books.field(job_id, "attempt")) == ("waiting", "0")
    said = Counter(entry["event"] for entry in logs)
    assert said["lease_lost"] == 0
    assert said["redis_away"] <= 1 + len(PASSING) // 5


@pytest.mark.parametrize("name", sorted(WRONG))
async def test_what_redis_calls_wrong_ends_a_worker_with_its_code(
    books: Deployment, wire: CrookedWire, crooked: redis.Redis, name: str
) -> None:
    """One line says what it was; the job is another's at once, or as soon as its lease lapses."""
    stage = Stage(crooked, books.settings, ScriptedRuntime(plays=True, pace_s=0.01))
    with capture_logs() as logs, running(stage) as life:
        job_id = await admit(books, max_frames=LONG)
        await until(lambda: books.redis.xlen(books.keys.events(job_id)) > 1)
        wire.always(REFUSALS[name])

        assert await asyncio.to_thread(life.wait) == REDIS_REFUSED

    assert books.state(job_id) in ("waiting", "running")
    assert [entry["event"] for entry in logs].count("redis_refused") <= 2


async def test_a_reaper_and_a_scrape_outlive_every_reply(
    books: Deployment, wire: CrookedWire, crooked: redis.Redis
) -> None:
    """A round fails and the next one goes; metrics say that Redis is away."""
    books.worker()
    job_id = await admit(books)
    reaper, link = Reaper(crooked, books.settings), Link(failure="reap_failed")
    metrics = QueueMetrics(crooked, "t")

    def round_() -> None:
        with link.attempt():
            reaper.reap()
        list(metrics.families())

    for reply in (REFUSALS | GARBAGE | ODD).values():
        wire.always(reply)
        await asyncio.to_thread(round_)
    wire.answer = None
    books.redis.delete(books.carrier.list_key)
    await asyncio.to_thread(round_)

    assert books.listed() == [job_id]


async def test_a_stack_names_what_is_wrong_with_its_redis(wire: CrookedWire) -> None:
    """In one line, whatever answers where a Redis was named."""
    url = await wire.open()
    for name, reply in (REFUSALS | GARBAGE | ODD).items():
        wire.always(reply)

        why = await asyncio.to_thread(refusal, url)

        assert why, name
        assert len(why.splitlines()) == 1, name


def test_what_rq_stumbles_over_fails_no_job() -> None:
    """Its records are there to be seen, whatever is in them."""
    with capture_logs() as logs:
        for error in (ResponseError("ERR"), TypeError("None"), ValueError("not a date")):
            with for_show("beat"):
                raise error

    assert [entry["event"] for entry in logs] == ["rq_record_failed"] * 3
