"""Fixtures for every package: a fake Redis for speed, a real server for kills and restarts."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import fakeredis
import pytest
import redis
from hypothesis import settings

from cli.exits import CommandFailed
from cli.redis_server import find_binary, free_port
from scheduler import load
from scheduler.scripts import Scripts
from tests.crooked import CrookedWire

TERMINAL = {"FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
WAIT_S = 30.0
"""For what takes a moment, on however busy a machine: only who waits in vain waits so long."""


def pytest_configure() -> None:
    """The caller's own deployment and terminal are nothing to the tests, nor to what they start; a
    proxy is for what is elsewhere.
    """
    for name in tuple(os.environ):
        if name.startswith("PSIONIC_CSM_") or name in {"REDIS_URL", *TERMINAL}:
            del os.environ[name]
    settings.register_profile(
        "tests", deadline=None, database=None
    )  # busy machines, read-only trees
    if not os.environ.get("CI"):  # there hypothesis takes a profile of its own
        settings.load_profile("tests")
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, ["127.0.0.1,localhost", os.environ.get(name)]))


class RedisServer:
    """A real Redis of a test's own, which the test may stop, kill and start again."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self._binary = binary
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def start(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [
                self._binary,
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(self._directory), "--save", "", "--appendonly", "yes"),
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            restore_signals=False,  # a file that may not grow is an error to it, and no signal
        )
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.exceptions.ConnectionError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    def fill_disk(self, is_full: bool = True) -> None:
        """From now on none of its files can grow; or they can again."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (1 if is_full else hard, hard))

    def write_out(self) -> None:
        """What it has acknowledged is in its file, though a busy disk has kept that waiting."""
        with self.client() as client:
            client.config_set("appendfsync", "always")

    def stop(self, *, kill: bool = False) -> None:
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(WAIT_S)
        self._process = None


def heartbeats(client: redis.Redis, namespace: str) -> dict[str, dict[str, Any]]:
    """What each live worker of a namespace says of itself, by its id."""
    workers = load.parse(Scripts(client, namespace).call("load")).workers
    return {str(said["worker_id"]): said for said in workers}


def _never() -> str:
    return "what was waited for never came"


async def until(
    condition: Callable[[], Any],
    timeout_s: float = WAIT_S,
    why: Callable[[], str] = _never,
) -> None:
    """Wait for what another process or thread will make true; fail when it doesn't."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(why())
        await asyncio.sleep(0.005)


def wait_until(
    condition: Callable[[], Any], timeout_s: float = WAIT_S, why: Callable[[], str] = _never
) -> None:
    """As ``until``, for a test without an event loop."""
    asyncio.run(until(condition, timeout_s, why))


T = TypeVar("T")


def quickest(call: Callable[[], T], tries: int = 5) -> tuple[float, T]:
    """How long it takes in seconds when nothing else is in its way, and what the last try gave.

    A neighbour that has the processors holds up one try or another; what waits by itself, all.
    """
    took_s: list[float] = []
    for _ in range(tries):
        began = time.monotonic()
        given = call()
        took_s.append(time.monotonic() - began)
    return min(took_s), given


@pytest.fixture
def fake_server() -> fakeredis.FakeServer:
    """One in-memory Redis that a test's clients, sync and async, share."""
    return fakeredis.FakeServer(version=(7, 0, 0))


@pytest.fixture
def fake_redis(fake_server: fakeredis.FakeServer) -> redis.Redis:
    return as_redis_7(fakeredis.FakeRedis(server=fake_server))


def as_redis_7(client: redis.Redis) -> redis.Redis:
    """fakeredis has no INFO, so RQ would take its path for old servers: pin the version."""
    setattr(client, "__rq_redis_server_version", (7, 0, 0))
    return client


def redis_binary() -> Path:
    """A redis-server. Skips at home without one, fails in CI."""
    try:
        return find_binary()
    except CommandFailed as missing:
        if os.environ.get("CI"):
            pytest.fail(missing.message)
        pytest.skip(missing.message)


@contextmanager
def redis_in(directory: Path) -> Iterator[RedisServer]:
    """A started redis-server on a free port."""
    server = RedisServer(redis_binary(), directory)
    server.start()
    yield server
    server.stop(kill=True)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A real redis-server of a test's own."""
    directory = tmp_path / "redis"
    directory.mkdir()
    with redis_in(directory) as server:
        yield server


@pytest.fixture
async def wire(redis_server: RedisServer) -> AsyncIterator[CrookedWire]:
    """A way to that server on which replies are changed as the test wants."""
    wire = CrookedWire(redis_server.port)
    yield wire
    await wire.close()
