"""Redis clients with the time limits that each use needs, and what it means when Redis is away.

A command is tried once more when its connection turns out to be dead, since a restarted Redis
leaves a pool full of those; every script of ours tolerates a second run after a lost reply.

A time limit is meant for Redis. When this process itself stood still (stopped, swapped out, its
event loop busy), the limit is over as it wakes, although the reply lies in the socket: such a
command is asked once more, too.

uvloop has an error of its own for a connection that was reset while nobody used it, which
redis-py doesn't know. It is made the error that any other loop gives.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry

from shared.errors import SpeechError

AWAY: Final[tuple[type[Exception], ...]] = (
    RedisConnectionError,
    RedisTimeoutError,
    ReadOnlyError,
    ClusterDownError,
    TryAgainError,
    NoScriptError,
    NoPermissionError,
    InvalidResponse,
    OSError,
)
"""What a Redis that is away, loading, failing over or being set up anew looks like to a caller, and
what is no Redis. Of MASTERDOWN redis-py makes a ClusterDownError.
"""

TROUBLE: Final[tuple[type[Exception], ...]] = (RedisError, OSError)
"""Whatever Redis may answer, or fail to: what a loop that must go on for ever lives through."""

# A server that answers and can't serve now: full, a replica, a failing disk; held by somebody's
# script; made a replica under a call that waited; asking for a password since a moment ago; or told
# to end this very script. Redis 6 wraps these in the text of a script's error, so the words are
# looked for and not the class.
_NOT_NOW: Final = (
    *("OOM ", "READONLY ", "MISCONF ", "MASTERDOWN ", "NOREPLICAS "),
    *("BUSY ", "UNKILLABLE ", "UNBLOCKED ", "LOADING ", "NOAUTH ", "NOPERM ", "DENIED "),
    "Script killed by user",
)

BLOCK_MS: Final = 1000
"""How long a blocking read waits before it looks round."""

RETRY_AFTER_S: Final = 2.0

LATE_S: Final = 0.1
"""A time limit that is found out so much later was missed by this process, not by Redis."""


class StallRetry(AsyncRetry):
    """Retries once over a dead connection, and once when this process slept through ``limit_s``."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
        self._limit_s = limit_s

    async def call_with_retry(
        self, do: Callable[[], Awaitable[Any]], fail: Callable[..., Any], *rest: Any, **options: Any
    ) -> Any:
        asked_at = time.monotonic()
        try:
            return await super().call_with_retry(do, fail, *rest, **options)
        except RedisTimeoutError:
            if time.monotonic() - asked_at < self._limit_s + LATE_S:
                raise
        return await super().call_with_retry(do, fail, *rest, **options)


def resets_known(connection_class: type[Any]) -> type[Any]:
    """The same class of asyncio connections, for which a reset one is lost and not a defect.

    redis-py finds a connection that was closed, but not one that was reset, before it writes;
    uvloop then answers the write with RuntimeError, where asyncio's own loops raise OSError later.
    """

    class Resettable(connection_class):  # type: ignore[misc]
        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except RuntimeError as error:
                raise RedisConnectionError("the connection was reset") from error

    return Resettable


def connect(url: str, *, timeout_s: float = 1.5) -> redis.Redis:
    """A synchronous client that gives up after ``timeout_s``, which must exceed ``BLOCK_MS``."""
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
    )


def connect_async(
    url: str, *, timeout_s: float = 0.8, max_connections: int = 64
) -> redis.asyncio.Redis:
    """An asyncio client that gives up after ``timeout_s``; commands past the pool's size wait."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=StallRetry(timeout_s),
    )
    pool.connection_class = resets_known(pool.connection_class)
    return redis.asyncio.Redis.from_pool(pool)


def is_away(error: Exception) -> bool:
    """Whether an error means that Redis can't be used now, and not that something is wrong."""
    if isinstance(error, (*AWAY, OutOfMemoryError)):
        return True
    return isinstance(error, ResponseError) and any(word in str(error) for word in _NOT_NOW)


def trouble_in_words(error: Exception) -> str:
    """For a log: what Redis said, or what kept it from saying anything."""
    return f"{type(error).__name__}: {error}"[:200]


def is_full(error: Exception) -> bool:
    """Whether Redis is at its memory limit and refused a command that takes some."""
    return isinstance(error, OutOfMemoryError) or "OOM " in str(error)


class QueueAway(SpeechError):
    """Redis itself can't be used now: what one caller hears of it holds for all."""

    def __init__(self, message: str = "the queue can't be reached") -> None:
        super().__init__("queue_unavailable", message, retry_after_s=RETRY_AFTER_S)


def memory_low() -> SpeechError:
    return SpeechError(
        "queue_memory_low", "the queue is near its memory limit", retry_after_s=RETRY_AFTER_S
    )


@contextmanager
def refusing_when_away() -> Iterator[None]:
    """Turn Redis being away or full into the refusal that a caller gets."""
    try:
        yield
    except AWAY as error:
        raise QueueAway from error
    except ResponseError as error:
        if is_full(error):
            raise memory_low() from error
        if is_away(error):
            raise QueueAway("the queue takes no writes") from error
        raise
