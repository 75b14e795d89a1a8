"""One gateway's wake stream, to which writers add the ids of the jobs that there is news of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.connections import BLOCK_MS, reading
from shared.keys import Keys

if TYPE_CHECKING:
    from redis.asyncio import Redis

WAKE_BATCH: Final = 10_000
"""As long as the wake stream is kept: a full batch may have lost entries."""

START: Final = b"0-0"


class Wakes:
    """Reads the stream from where the last read ended; raises what Redis raises.

    ``redis`` must allow a read to block for ``BLOCK_MS``.
    """

    def __init__(self, redis: Redis, namespace: str, gateway_id: str) -> None:
        self._redis = redis
        self._key = Keys(namespace).wake(gateway_id)
        self.position: bytes = START

    async def next(self) -> set[str] | None:
        """The jobs that there is news of; none after ``BLOCK_MS``. None: entries may be lost, and
        there may be news of any job.
        """
        with reading(self._redis):
            reply: Any = await self._redis.xread(
                {self._key: self.position}, count=WAKE_BATCH, block=BLOCK_MS
            )
            if not reply:
                await self._look_again()
                return set()
            entries = reply[0][1]
            woken = {
                job
                for _, fields in entries
                for job in fields.get(b"jobs", b"").decode("utf-8", "replace").split(" ")
            }
            self.position = entries[-1][0]
            return woken if len(entries) < WAKE_BATCH else None

    async def start_over(self) -> None:
        """Read from the start, if that can be read: hearing of a job twice is harmless."""
        with reading(self._redis):
            dict(await self._redis.xread({self._key: START}, count=1) or ())
        self.position = START

    async def close(self) -> None:
        await self._redis.delete(self._key)

    async def _look_again(self) -> None:
        """Read from the start where what was read last isn't the last: the stream has lapsed, or is
        a new one. With Redis's clock put back, what it holds has lower ids than what was read.
        """
        last: Any = await self._redis.xrevrange(self._key, count=1)
        if not last or last[0][0] != self.position:
            self.position = START
