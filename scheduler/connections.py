"""Redis clients with the time limits that each use needs, and what it means when Redis is away.

A command is tried once more when its connection turns out to be dead, since a restarted Redis
leaves a pool full of those; every script of ours tolerates a second run after a lost reply.

A time limit is meant for Redis. When this process itself stood still (stopped, swapped out, its
event loop busy), the limit is over as it wakes, although the reply lies in the socket: such a
command is asked once more, too.

A connection over which something came that is no reply, or none to what was asked, is used no more:
what comes next may be the reply to something else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

import redis
import redis.asyncio
import structlog
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
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
    *(
        "max number of clients",
        "Script killed by user",
        "The user executing the script can't",
        "ACL failure in script",
    ),
)

UNREADABLE: Final = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
"""What reading a reply may come to that is not what was asked for, or no reply at all."""

PROTOCOL: Final = 2
"""Of RESP. Over 3 redis-py also expects notices of a server that moves, and so no longer looks for
what lies in a connection before it uses it: after one reply too many, each would be taken for the
one before.
"""

BLOCK_MS: Final = 1000
"""How long a blocking read waits before it looks round."""

LATE_S: Final = 0.1
"""A time limit that is found out so much later was missed by this process, not by Redis."""

_NONE_FREE: Final = "No connection available."
"""What redis-py says of a wait for a connection that was too long."""

log = structlog.get_logger()


class UnreadableReply(RedisConnectionError):
    """Something came, and it isn't the reply to what was asked."""


class PoolBusy(RedisConnectionError):
    """No connection was free in time though Redis answers: this process asks too much at once."""


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


def steady(connection_class: type[Any]) -> type[Any]:
    """The same class of asyncio connections, which has one error for all that ends a connection.

    redis-py finds a connection that was closed, but not one that was reset, before it writes;
    uvloop then answers the write with RuntimeError, where asyncio's own loops raise OSError later.
    And whatever its parser stumbles over gets out as it is. Nothing is said of what came: it may be
    a part of somebody's text.
    """

    class Steady(connection_class):  # type: ignore[misc]
        era = 0
        heard_at = -math.inf
        """When a reply came over any of them."""

        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except RuntimeError as error:
                raise RedisConnectionError("the connection was reset") from error

        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                reply = await super().read_response(*args, **options)
            except (InvalidResponse, *UNREADABLE) as error:
                raise UnreadableReply("what came is no reply of a Redis") from error
            Steady.heard_at = time.monotonic()
            return reply

    return Steady


def readable(connection_class: type[Any]) -> type[Any]:
    """The same class of blocking connections, which has one error for what is no reply."""

    class Readable(connection_class):  # type: ignore[misc]
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except (InvalidResponse, *UNREADABLE) as error:
                raise UnreadableReply("what came is no reply of a Redis") from error

    return Readable


class Pool(redis.asyncio.BlockingConnectionPool):
    """Replaces the connections of an era that is over, each as it is wanted next. Who waits for one
    in vain hears whether that is for want of Redis: PoolBusy says that it isn't.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connection_class: Any = steady(self.connection_class)
        self._era = 0

    def begin_era(self) -> None:
        """Use none of the connections any more that there are."""
        self._era += 1

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        waits_since = time.monotonic()
        try:
            return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        except RedisConnectionError as error:
            if str(error) == _NONE_FREE and self.connection_class.heard_at > waits_since:
                raise PoolBusy("all connections are in use") from error
            raise

    async def ensure_connection(self, connection: Any) -> None:
        if connection.era != self._era:
            await connection.disconnect(nowait=True)
            connection.era = self._era
        await super().ensure_connection(connection)


def connect(url: str, *, timeout_s: float = 1.5) -> redis.Redis:
    """A synchronous client that gives up after ``timeout_s``, which must exceed ``BLOCK_MS``."""
    client = redis.Redis.from_url(
        url,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        protocol=PROTOCOL,
    )
    client.connection_pool.connection_class = readable(client.connection_pool.connection_class)
    return client


def connect_async(
    url: str, *, timeout_s: float = 0.8, max_connections: int = 64
) -> redis.asyncio.Redis:
    """An asyncio client that gives up after ``timeout_s``; commands past the pool's size wait."""
    pool = Pool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=StallRetry(timeout_s),
        protocol=PROTOCOL,
    )
    return redis.asyncio.Redis.from_pool(pool)


def is_away(error: Exception) -> bool:
    """Whether an error means that Redis can't be used now, and not that something is wrong."""
    if isinstance(error, (*AWAY, OutOfMemoryError)):
        return True
    return isinstance(error, ResponseError) and any(word in str(error) for word in _NOT_NOW)


def trouble_in_words(error: Exception) -> str:
    """For a log: what Redis said, or what kept it from saying anything. Nothing of what is no
    reply, nor what Redis repeats of what it was told: it may be a part of somebody's text.
    """
    said = str(error).partition(", with args beginning with:")[0]
    if isinstance(error, InvalidResponse):
        said = "what came is no reply of a Redis"
    return f"{type(error).__name__}: {said}"[:200]


def is_full(error: Exception) -> bool:
    """Whether Redis is at its memory limit and refused a command that takes some."""
    return isinstance(error, OutOfMemoryError) or "OOM " in str(error)


@contextmanager
def reading(redis: redis.Redis | redis.asyncio.Redis) -> Iterator[None]:
    """Ask Redis inside, and make of its reply what is wanted: nothing else. One that can't be read
    raises UnreadableReply, and the connection that it came over is used no more.
    """
    try:
        yield
    except UNREADABLE as error:
        pool = redis.connection_pool
        if isinstance(pool, Pool):
            pool.begin_era()
        elif isinstance(pool, ConnectionPool):
            pool.disconnect(inuse_connections=False)
        place = extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
        log.error("reply_unreadable", error=found)
        raise UnreadableReply(f"what came is no reply to what was asked: {found}") from error
