"""What happens to jobs, as the gateways that wait for them hear it.

Each job has a stream of events. A gateway doesn't read those of all its jobs: writers add the job's
id to the wake stream of every gateway that listens, and the gateway's one reader blocks on that
stream alone. So the cost doesn't grow with the jobs that merely wait, and a job that is added while
the reader blocks is not missed.

What is read is bounded: a caller that has taken what it was given asks for the next few events, by
its place in the stream, and only if there are any. A slow one leaves the rest in Redis.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from scheduler.connections import TROUBLE, reading, trouble_in_words
from scheduler.events import parse, written_ms
from scheduler.scripts import is_damage
from scheduler.wakes import START, Wakes
from shared.clock import Countdown
from shared.keys import Keys
from shared.messages import Claimed, Event, MalformedMessage

if TYPE_CHECKING:
    from redis.asyncio import Redis

WINDOW: Final = 16
"""Most events that are held for one caller, of 4 KiB each."""

READ_AT_ONCE: Final = 16
"""Most jobs that are read in one call, so that no reply keeps the process busy for long."""

DEAF_MS: Final = 1000
LONGEST_PAUSE_S: Final = 0.25
"""Between two tries while news can't be read."""

log = structlog.get_logger()


class Subscription:
    """One caller's view of one job's events, in order, from the first."""

    def __init__(self, reader: EventReader, job_id: str, *, news: bool, final: bool) -> None:
        self.job_id = job_id
        self.position: bytes = START
        self.admitted_ms: int | None = None
        """When its job was let in, on Redis's clock; known once it was claimed."""
        self.news = news
        """There may be events behind ``position``."""
        self.final = final
        """Nothing will be added to what there is, so a read that finds nothing is the end."""
        self.hungry = False
        self._reader = reader
        self._window: deque[Event | None] = deque()
        self._fed = asyncio.Event()

    async def next(self) -> Event | None:
        """The next event, or None when the job is gone from Redis. For one caller at a time."""
        while not self._window:
            self._fed.clear()
            self.hungry = True
            self._reader.want(self)
            await self._fed.wait()
        return self._window.popleft()

    def deliver(self, event: Event | None) -> None:
        """Hold one more event; None: what comes next can't be read, or is gone."""
        self._window.append(event)
        self.hungry = False
        self._fed.set()

    def lose(self) -> None:
        """Nothing more will come. What there is can still be read."""
        self.final = True
        self._reader.want(self)

    @property
    def due(self) -> bool:
        """Whether its caller waits for what a read may find."""
        return self.hungry and (self.news or self.final)


class EventReader:
    """One gateway process's reader for all its jobs.

    ``redis`` must allow a read to block for ``BLOCK_MS``.
    """

    def __init__(self, redis: Redis, namespace: str, gateway_id: str) -> None:
        self._redis = redis
        self._keys = Keys(namespace)
        self.wakes = Wakes(redis, namespace, gateway_id)
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._due: dict[Subscription, None] = {}
        self._wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._patience: Countdown | None = None

    def start(self) -> None:
        self._tasks = {
            asyncio.create_task(self._wake_for_ever(), name="event-wake"),
            asyncio.create_task(self._read_for_ever(), name="event-reader"),
        }

    def stop(self) -> None:
        """Read no more."""
        # A cancellation that meets a dying connection may come out as that connection's error, so
        # the loops are also told to end.
        self._closing = True
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(*TROUBLE):
            await self.wakes.close()

    @property
    def alive(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def deaf(self) -> bool:
        """Whether nothing was heard for so long, and not for want of news, that nobody should be
        let in who waits for it.
        """
        return self._patience is not None and self._patience.over

    def subscribe(self, job_id: str, *, news: bool = False, final: bool = False) -> Subscription:
        """Hear a job's events. ``news``: it may have some already, ``final``: and has them all."""
        subscription = Subscription(self, job_id, news=news, final=final)
        self._subscriptions.setdefault(job_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._due.pop(subscription, None)
        group = self._subscriptions.get(subscription.job_id)
        if group is not None:
            group.discard(subscription)
            if not group:
                del self._subscriptions[subscription.job_id]

    def want(self, subscription: Subscription) -> None:
        """Read for this one when its turn comes, if that may find anything."""
        if subscription.due:
            self._due[subscription] = None
            self._wanted.set()
        else:  # told of news while a read was under way that found it
            self._due.pop(subscription, None)

    async def has_ended(self, job_id: str) -> bool:
        """Whether all that a job will ever have is there. Raises what Redis raises."""
        with reading(self._redis):
            last: Any = await self._redis.xrevrange(self._keys.events(job_id), count=1)
            return bool(last) and last[0][1].get(b"k") == b"end"

    def _tell(self, job_ids: Iterable[str]) -> None:
        """There is news of these jobs."""
        for job_id in job_ids:
            for subscription in self._subscriptions.get(job_id, ()):
                subscription.news = True
                self.want(subscription)

    async def _wake_for_ever(self) -> None:
        failures = 0
        while not self._closing:
            try:
                if failures:
                    await self.wakes.start_over()
                    self._tell(list(self._subscriptions))
                    self._patience = None
                woken = await self.wakes.next()
                if failures:
                    log.info("event_reader_recovered")
                    failures = 0
                self._tell(list(self._subscriptions) if woken is None else woken)
            except TROUBLE as error:
                self._patience = self._patience or Countdown(DEAF_MS)
                failures += 1
                if failures == 1:
                    log.warning("event_reader_lost_redis", error=trouble_in_words(error))
                await asyncio.sleep(min(0.1 * failures, LONGEST_PAUSE_S))

    async def _read_for_ever(self) -> None:
        while not self._closing:
            await self._wanted.wait()
            batch = self._next_batch()
            if not batch:
                self._wanted.clear()
                continue
            try:
                await self._read(batch)
            except TROUBLE as error:
                if is_damage(error):
                    await self._read_apart(batch)
                else:
                    self._want_again(batch)
                    await asyncio.sleep(0.1)

    async def _read_apart(self, batch: Mapping[str, list[Subscription]]) -> None:
        """What is no stream ends the wait of its own job's callers, nobody else's."""
        for job_id, group in batch.items():
            try:
                await self._read({job_id: group})
            except TROUBLE as error:
                if not is_damage(error):
                    self._want_again({job_id: group})
                    continue
                log.error("event_unreadable", job=job_id, why=trouble_in_words(error))
                for subscription in group:
                    subscription.deliver(None)

    def _want_again(self, batch: Mapping[str, list[Subscription]]) -> None:
        for group in batch.values():
            for subscription in group:
                subscription.news = True
                self.want(subscription)

    def _next_batch(self) -> dict[str, list[Subscription]]:
        """Those whose turn it is, by job. Callers of one job that stand at one place share a read,
        others take turns.
        """
        batch: dict[str, list[Subscription]] = {}
        for subscription in self._due:
            group = batch.get(subscription.job_id)
            if group is None:
                if len(batch) == READ_AT_ONCE:
                    break
                batch[subscription.job_id] = [subscription]
            elif group[0].position == subscription.position:
                group.append(subscription)
        for group in batch.values():
            for subscription in group:
                del self._due[subscription]
        return batch

    async def _read(self, batch: Mapping[str, list[Subscription]]) -> None:
        streams: dict[bytes | str | memoryview, int | bytes | str | memoryview] = {
            self._keys.events(job_id): group[0].position for job_id, group in batch.items()
        }
        was_final = {each for group in batch.values() for each in group if each.final}
        for group in batch.values():
            for subscription in group:
                subscription.news = False  # what comes from now on is told again
        with reading(self._redis):
            reply: Any = await self._redis.xread(streams, count=WINDOW)
            found = _entries(reply)
        for job_id, group in batch.items():
            entries = found.get(self._keys.events(job_id).encode(), [])
            for entry in entries:
                _hear(group, *entry)
            for subscription in group:
                if not entries and subscription in was_final:
                    subscription.deliver(None)
                elif len(entries) == WINDOW:
                    subscription.news = True
                self.want(subscription)


def _entries(reply: Any) -> dict[bytes, list[tuple[bytes, int, dict[bytes, bytes]]]]:
    """Of each stream the entries that were read: where each stands, when it was written, and what
    is in it.
    """
    return {
        key: [(position, written_ms(position), dict(fields)) for position, fields in entries]
        for key, entries in dict(reply or ()).items()
    }


def _hear(
    group: Sequence[Subscription], position: bytes, at_ms: int, fields: Mapping[bytes, bytes]
) -> None:
    """Pass one entry on to those who stand at the same place of one job. One that can't be read
    ends their wait, nobody else's.
    """
    admitted_ms = group[0].admitted_ms
    elapsed_ms = 0 if admitted_ms is None else max(0, at_ms - admitted_ms)
    try:
        event = parse(fields, elapsed_ms)
    except MalformedMessage as error:
        log.error("event_unreadable", why=str(error))
        for subscription in group:
            subscription.position = position
            subscription.deliver(None)
        return
    for subscription in group:
        subscription.position = position
        if isinstance(event, Claimed):
            subscription.admitted_ms = event.admitted_ms
        if event is not None:
            subscription.deliver(event)
