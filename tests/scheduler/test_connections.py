"""Redis clients: a time limit is for Redis, and not for a process that itself stood still."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from redis.exceptions import TimeoutError as RedisTimeoutError

from scheduler.asking import asking
from scheduler.connections import connect_async
from shared.errors import SpeechError
from tests.chaos.wire import Wire
from tests.conftest import RedisServer

pytestmark = pytest.mark.redis


async def test_a_process_that_stood_still_asks_again(redis_server: RedisServer) -> None:
    """The reply came in time and lay in the socket: nobody is told that Redis is away."""
    client: Any = connect_async(redis_server.url, timeout_s=1.0)
    await client.ping()
    reply = asyncio.ensure_future(client.execute_command("BLPOP", "nothing", "0.2"))
    await asyncio.sleep(0.05)
    time.sleep(1.5)  # noqa: ASYNC251  the whole process, as when it is stopped

    assert await reply is None
    await client.aclose()


async def test_a_redis_that_hangs_is_not_asked_again(redis_server: RedisServer) -> None:
    """A time limit that was missed by Redis counts, once."""
    client = connect_async(redis_server.url, timeout_s=0.4)
    await client.ping()
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        took_s: list[float] = []
        while not took_s or (min(took_s) > 0.75 and len(took_s) < 5):  # this process may be late
            asked_at = time.monotonic()
            with pytest.raises(RedisTimeoutError):
                await client.ping()
            took_s.append(time.monotonic() - asked_at)
        assert min(took_s) <= 0.75
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    await client.aclose()


async def test_who_waits_for_others_hears_that_it_is_crowded(redis_server: RedisServer) -> None:
    """Too many questions at once are no want of Redis; with Redis hung they are."""
    client: Any = connect_async(redis_server.url, timeout_s=0.5, max_connections=1)
    await client.ping()

    async def ask() -> str:
        try:
            with asking(client):
                await client.execute_command("BLPOP", "nothing", "0.15")
        except SpeechError as error:
            return error.code
        return "answered"

    crowd = await asyncio.gather(*(ask() for _ in range(20)))
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        hung = await asyncio.gather(*(ask() for _ in range(20)))
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)

    assert set(crowd) == {"answered", "too_many_waiting"}
    assert set(hung) == {"queue_unavailable"}
    await client.aclose()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_was_reset_is_replaced(
    redis_server: RedisServer, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Under every loop and for every use: nobody hears of one that was lost while idle."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_reset_in_every_use(redis_server.port))


async def _reset_in_every_use(redis_port: int) -> None:
    wire = Wire(redis_port)
    client: Any = connect_async(await wire.open(), timeout_s=5)
    heard = client.pubsub()
    try:
        await heard.subscribe("before")
        for again in range(3):
            assert await client.incr("n") == 2 * again + 1
            await _reset(wire)
            assert await client.incr("n") == 2 * again + 2
            await _reset(wire)
            assert await client.pipeline().ping().ping().execute() == [True, True]
            await _reset(wire)
            await heard.subscribe(f"after {again}")
    finally:
        await heard.aclose()
        await client.aclose()
        wire.close()
        await asyncio.sleep(0.1)  # uvloop can't be closed before what was reset is


async def _reset(wire: Wire) -> None:
    """Both ends know of it."""
    wire.reset()
    for _ in range(20):
        await asyncio.sleep(0.005)
