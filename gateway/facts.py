"""Live facts about the queue and its workers, shared by all requests of one gateway.

However many ask, there is one read in ``FRESH_MS``; when it fails, all who wait hear so together
instead of one after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gateway import runtime
from gateway.runtime import UNSERVED, Served
from scheduler.load import Load, LoadSnapshot
from shared.clock import monotonic_ms
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact

FRESH_MS: Final = 250.0
"""How old a fact may be that a decision rests on, also the fact that Redis is away."""
RECENT_MS: Final = 2000.0
"""How old a fact may be that only labels an answer."""
BACK_OFF_MS: Final = 500.0
"""How long a failed read is taken as the answer by those who only want a label."""
LABEL_WAIT_S: Final = 0.2
"""How long an answer may be held up for a label."""


class Facts:
    """What is true of the queue, at most a moment ago."""

    def __init__(self, load: Load) -> None:
        self.fresh_ms = FRESH_MS
        self.label_wait_s = LABEL_WAIT_S
        self._load = load
        self._reading: asyncio.Task[LoadSnapshot] | None = None
        self._latest: LoadSnapshot | None = None
        self._read_at = 0.0
        self._failure: SpeechError | None = None
        self._failed_at = -BACK_OFF_MS

    async def snapshot(self) -> LoadSnapshot:
        """Raises SpeechError("queue_unavailable") when Redis is away."""
        now = monotonic_ms()
        if self._latest is not None and now - self._read_at < self.fresh_ms:
            return self._latest
        if self._failure is not None and now - self._failed_at < self.fresh_ms:
            raise self._failure.with_traceback(None)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="load-read")
            self._reading.add_done_callback(_heard)
        return await asyncio.shield(self._reading)

    async def prompt(self) -> LoadSnapshot | None:
        """What is known within a moment, for whoever must not wait; None when nothing is."""
        try:
            async with asyncio.timeout(self.label_wait_s):
                return await self.snapshot()
        except (SpeechError, TimeoutError):
            is_recent = monotonic_ms() - self._read_at < RECENT_MS
            return self._latest if is_recent else None

    async def served(self, artifact: Artifact, worker_id: str | None = None) -> Served:
        """What serves this artifact: the named worker if it is known, else their sum.

        Never fails: with Redis away, nothing is served.
        """
        snapshot = await self._recent()
        if snapshot is None:
            return UNSERVED
        workers = runtime.workers_of(artifact, snapshot.workers)
        for worker in workers:
            if worker_id is not None and worker.get("worker_id") == worker_id:
                return runtime.served_by(worker)
        return runtime.served(runtime.summarise(workers))

    async def workers_of(self, artifact: Artifact) -> list[Mapping[str, Any]]:
        return runtime.workers_of(artifact, (await self.snapshot()).workers)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> LoadSnapshot:
        try:
            latest = await self._load.snapshot()
        except SpeechError as failure:
            self._failure, self._failed_at = failure, monotonic_ms()
            self._latest = None
            raise
        self._latest, self._read_at = latest, monotonic_ms()
        return latest

    async def _recent(self) -> LoadSnapshot | None:
        now = monotonic_ms()
        if self._latest is not None and now - self._read_at < RECENT_MS:
            return self._latest
        if now - self._failed_at < BACK_OFF_MS:
            return None
        return await self.prompt()


def _heard(reading: asyncio.Task[LoadSnapshot]) -> None:
    """A failure that everybody stopped waiting for is no news."""
    if not reading.cancelled():
        reading.exception()
