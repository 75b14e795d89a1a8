"""A gateway in this process over a fake Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fakeredis
import pytest
import redis

from shared.settings import GatewaySettings
from tests.conftest import RedisServer
from tests.gateway.artifacts import write_artifact
from tests.gateway.processes import Process
from tests.gateway.world import World, gateway_settings, running


@pytest.fixture
def settings() -> GatewaySettings:
    return gateway_settings()


@pytest.fixture
async def world(
    settings: GatewaySettings,
    tmp_path: Path,
    fake_server: fakeredis.FakeServer,
    fake_redis: redis.Redis,
) -> AsyncIterator[World]:
    clients = [fakeredis.FakeAsyncRedis(server=fake_server) for _ in range(2)]
    async with running(settings, tmp_path, fake_redis, *clients) as world:
        yield world


@pytest.fixture
def process(redis_server: RedisServer, tmp_path: Path) -> Iterator[Process]:
    process = Process(redis_server, write_artifact(tmp_path / "artifact"))
    yield process
    process.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool
