"""The door of one gateway process: a few are let in at once, a crowd queues before them.

Were all of a crowd checked together, nothing else would be answered meanwhile. Were it to queue for
a connection to Redis, an overloaded gateway would be taken for an absent Redis. And when Redis is
found to be away, everybody at the door hears so at once instead of each in turn after a time limit
of their own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from scheduler.asking import QueueAway
from scheduler.connections import LATE_S
from shared.errors import SpeechError

AT_ONCE: Final = 8
"""Enough to keep this process and Redis busy, and few enough for what is not about speech to be
answered in between."""
WAIT_S: Final = 1.5


class Door:
    """``at_once`` pass together, others in the order in which they came, within ``wait_s``."""

    def __init__(self, at_once: int = AT_ONCE, wait_s: float = WAIT_S) -> None:
        self._free = at_once
        self._wait_s = wait_s
        self._queue: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self, within_s: float = math.inf) -> AsyncIterator[None]:
        """One's turn to be checked or admitted, for which nobody waits longer than ``within_s``.

        Raises SpeechError: ``too_many_waiting`` when it doesn't come, QueueAway when somebody
        before found Redis away.
        """
        await self._come_up(within_s)
        try:
            yield
        except QueueAway:
            self._turn_away()
            raise
        finally:
            self._let_next_in()

    async def _come_up(self, within_s: float) -> None:
        if self._free > 0:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            if not await self._has_come(place, within_s):
                raise _crowded()
            place.result()
        except (asyncio.CancelledError, SpeechError):
            self._give_up(place)
            raise

    async def _has_come(self, place: asyncio.Future[None], within_s: float) -> bool:
        """Whether it is free in time. What passes while this process stands still is nobody's wait,
        so that one who wakes late waits once more, and only once: a process that is late again is
        overloaded.
        """
        give_up_at = time.monotonic() + within_s
        for _ in range(2):
            came_at = time.monotonic()
            limit_s = max(0.0, min(self._wait_s, give_up_at - came_at))
            await asyncio.wait({place}, timeout=limit_s)
            if place.done() or time.monotonic() - came_at < limit_s + LATE_S:
                break
        return place.done()

    def _give_up(self, place: asyncio.Future[None]) -> None:
        """Leave the queue. Whose turn had just come passes it on."""
        if not place.done():
            place.cancel()
        elif not place.cancelled() and place.exception() is None:
            self._let_next_in()

    def _let_next_in(self) -> None:
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    def _turn_away(self) -> None:
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_exception(QueueAway())


def _crowded() -> SpeechError:
    return SpeechError(
        "too_many_waiting", "too many requests are at this gateway's door", retry_after_s=1.0
    )
