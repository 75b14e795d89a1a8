"""A gateway in this process over a fake Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest
import redis

from shared.settings import GatewaySettings
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
