"""Hands the ids of admitted jobs to RQ, off the event loop and off the request's way.

A hint that is lost costs a second at most: the reaper pushes every waiting job that no list holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
from redis import Redis

from scheduler.carrier import Carrier
from scheduler.connections import TROUBLE, UNREADABLE

Push = Callable[[str, str], None]
"""Takes a queue's name and a job's id; blocks."""

THREADS: Final = 4
LOSES_A_HINT: Final[tuple[type[Exception], ...]] = (*TROUBLE, *UNREADABLE)

log = structlog.get_logger()


class CarrierPush:
    """Pushes by RQ, with one carrier per queue."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace
        self._carriers: dict[str, Carrier] = {}

    def __call__(self, queue: str, job_id: str) -> None:
        carrier = self._carriers.get(queue)
        if carrier is None:
            carrier = self._carriers[queue] = Carrier(self._redis, self._namespace, queue)
        carrier.push(job_id)


class Hints:
    """The pushes that are under way."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rq-push")
        self._under_way: set[asyncio.Task[None]] = set()

    def give(self, queue: str, job_id: str) -> None:
        task = asyncio.create_task(self._give(queue, job_id), name="rq-push")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        try:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _give(self, queue: str, job_id: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, self._push, queue, job_id)
        except LOSES_A_HINT as error:
            log.warning("hint_lost", queue=queue, job=job_id, error=type(error).__name__)
