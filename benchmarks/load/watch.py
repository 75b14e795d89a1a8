"""How the stack stands while it is loaded: what it publishes, and how fast it answers a probe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from benchmarks.client import Caller
from benchmarks.load.records import Sample
from shared.paths import HEALTH, LOAD

LOAD_EVERY_S: Final = 0.2
HEALTH_EVERY_S: Final = 0.1
DEPTH_EVERY_S: Final = 0.02
UNANSWERED_S: Final = 60.0
"""What a probe counts with that was refused or broken off."""


class Watch:
    """Looks at a gateway, and at the queue's own count where ``depth`` reads it."""

    def __init__(self, caller: Caller, began: float, depth: Callable[[], int] | None) -> None:
        self._caller = caller
        self._began = began
        self._depth = depth
        self.samples: list[Sample] = []
        self.health_s: list[float] = []
        self.most_depth = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """In the background, on the event loop that is running."""
        looks: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._look_at_load, LOAD_EVERY_S),
            (self._look_at_health, HEALTH_EVERY_S),
        ]
        if self._depth is not None:
            looks.append((self._look_at_depth, DEPTH_EVERY_S))
        tasks = [asyncio.create_task(_for_ever(look, every_s)) for look, every_s in looks]
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()

    async def _look_at_load(self) -> None:
        at_s = time.perf_counter() - self._began
        reply = await self._caller.get(LOAD)
        if reply.status == 200:
            said = reply.json()
            depth, wait_s = int(said["queue_depth"]), float(said["estimated_wait_ms"]) / 1000
            self.samples.append(Sample(at_s, depth, int(said["in_flight_requests"]), wait_s))
            self.most_depth = max(self.most_depth, depth)

    async def _look_at_health(self) -> None:
        sent = time.perf_counter()
        try:
            served = (await self._caller.get(HEALTH)).status == 200
        except OSError:
            served = False
        self.health_s.append(time.perf_counter() - sent if served else UNANSWERED_S)

    async def _look_at_depth(self) -> None:
        assert self._depth is not None
        self.most_depth = max(self.most_depth, self._depth())


async def _for_ever(look: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        with suppress(OSError):  # it shows in the calls
            await look()
        await asyncio.sleep(every_s)
