"""What happens to jobs, as the gateways that wait for them hear it.

Each job has a stream of events. A gateway doesn't read those of all its jobs: writers add the job's
id to the wake stream of every gateway that listens, and the gateway's one reader blocks on that
stream alone. So the cost doesn't grow with the jobs that merely wait, and a job that is added while
the reader blocks is not missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from scheduler.connections import BLOCK_MS, TROUBLE
from shared.keys import Keys
from shared.messages import (
    CODES_BYTES,
    Claimed,
    End,
    Event,
    FrameRecord,
    MalformedMessage,
    Terminal,
)
from shared.wav import FRAME_BYTES

if TYPE_CHECKING:
    from redis.asyncio import Redis

WAKE_BATCH: Final = 10_000
"""As long as the wake stream is kept: a full batch may have lost entries."""

START: Final = b"0-0"

log = structlog.get_logger()


def parse(fields: Mapping[bytes, bytes]) -> Event | None:
    """One stream entry as an event; None for a kind that this version doesn't know.

    Raises MalformedMessage for an entry that is not what its kind says.
    """
    try:
        return _parse(fields)
    except (KeyError, ValueError) as error:
        raise MalformedMessage(f"event: {type(error).__name__}") from error


def _parse(fields: Mapping[bytes, bytes]) -> Event | None:
    kind = fields.get(b"k")
    if kind == b"frame":
        codes, pcm = fields[b"c"], fields[b"p"]
        if len(codes) != CODES_BYTES or len(pcm) != FRAME_BYTES:
            raise ValueError("not a whole frame")
        return FrameRecord(int(fields[b"i"]), codes, pcm, int(fields[b"t"]))
    if kind == b"claimed":
        return Claimed(
            int(fields[b"attempt"]), fields[b"worker"].decode(), int(fields[b"queue_wait_ms"])
        )
    if kind == b"end":
        return End(
            finish_reason=fields[b"reason"].decode(),
            failure_code=fields[b"code"].decode() or None,
            message=fields[b"message"].decode(),
            attempt=int(fields[b"attempt"]),
            abandoned=fields[b"abandoned"] == b"1",
            queue_wait_ms=int(fields[b"queue_wait_ms"]),
            first_audio_latency_ms=optional_int(fields[b"first_audio_ms"]),
            full_generation_latency_ms=int(fields[b"total_ms"]),
            terminal=parse_terminal(fields[b"terminal"]),
        )
    return None


def optional_int(value: bytes | None) -> int | None:
    return int(value) if value else None


def parse_terminal(value: bytes | None) -> Terminal | None:
    """The worker's statement, or None when there is none or it can't be read."""
    if not value:
        return None
    try:
        return Terminal.from_bytes(value)
    except MalformedMessage as error:
        log.error("terminal_unreadable", why=str(error))
        return None


class Subscription:
    """One caller's view of one job's events, in order, from the first."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.position: bytes = START
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def deliver(self, event: Event) -> None:
        self._events.put_nowait(event)

    def lose(self) -> None:
        """The job is gone from Redis: nothing more will come."""
        self._events.put_nowait(None)

    async def next(self) -> Event | None:
        """The next event, or None when the job is gone from Redis."""
        return await self._events.get()


class EventReader:
    """One gateway process's reader for all its jobs.

    ``redis`` must allow a read to block for ``BLOCK_MS``.
    """

    def __init__(self, redis: Redis, namespace: str, gateway_id: str) -> None:
        self._redis = redis
        self._keys = Keys(namespace)
        self._wake_key = self._keys.wake(gateway_id)
        self._wake_position: bytes = START
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._collecting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="event-reader")

    async def close(self) -> None:
        # A cancellation that meets a dying connection may come out as that connection's error, so
        # the loop is also told to end.
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with suppress(*TROUBLE):
            await self._redis.delete(self._wake_key)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def subscribe(self, job_id: str) -> Subscription:
        """Hear a job's events. Subscribe before the job can have any, or ``catch_up`` after."""
        subscription = Subscription(job_id)
        self._subscriptions.setdefault(job_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        group = self._subscriptions.get(subscription.job_id)
        if group is not None:
            group.discard(subscription)
            if not group:
                del self._subscriptions[subscription.job_id]

    async def catch_up(self, job_ids: Iterable[str]) -> None:
        """Read what there is of these jobs and deliver it."""
        async with self._collecting:
            # Subscriptions of one job may stand at different places: each place is read once.
            places: dict[tuple[str, bytes], list[Subscription]] = {}
            for job_id in job_ids:
                for subscription in self._subscriptions.get(job_id, ()):
                    places.setdefault((job_id, subscription.position), []).append(subscription)
            while places:
                rest = dict(places)
                streams: dict[bytes | str | memoryview, int | bytes | str | memoryview] = {}
                for job_id, position in places:
                    if self._keys.events(job_id) not in streams:
                        streams[self._keys.events(job_id)] = position
                        del rest[job_id, position]
                served = {place: group for place, group in places.items() if place not in rest}
                reply: Any = await self._redis.xread(streams)
                self._deliver(served, reply)
                places = rest

    def _deliver(
        self,
        places: Mapping[tuple[str, bytes], list[Subscription]],
        reply: Iterable[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]],
    ) -> None:
        by_stream = {
            self._keys.events(job_id).encode(): group for (job_id, _), group in places.items()
        }
        for stream, entries in reply:
            for position, fields in entries:
                self._hear(by_stream[stream], position, fields)

    def _hear(
        self, group: Iterable[Subscription], position: bytes, fields: Mapping[bytes, bytes]
    ) -> None:
        """Pass one entry on. One that can't be read ends its own callers' wait, nobody else's."""
        try:
            event = parse(fields)
        except MalformedMessage as error:
            log.error("event_unreadable", why=str(error))
            for subscription in group:
                subscription.position = position
                subscription.lose()
            return
        for subscription in group:
            subscription.position = position
            if event is not None:
                subscription.deliver(event)

    async def _run(self) -> None:
        failures = 0
        while not self._closing:
            try:
                if failures:
                    await self._redis.ping()
                    self._wake_position = START
                    await self.catch_up(list(self._subscriptions))
                    log.info("event_reader_recovered")
                    failures = 0
                await self._wait_and_deliver()
            except TROUBLE as error:
                failures += 1
                if failures == 1:
                    log.warning("event_reader_lost_redis", error=type(error).__name__)
                await asyncio.sleep(min(0.1 * failures, 1.0))

    async def _wait_and_deliver(self) -> None:
        reply: Any = await self._redis.xread(
            {self._wake_key: self._wake_position}, count=WAKE_BATCH, block=BLOCK_MS
        )
        if not reply:
            return
        entries = reply[0][1]
        self._wake_position = entries[-1][0]
        woken = {fields.get(b"job", b"").decode("utf-8", "replace") for _, fields in entries}
        overrun = len(entries) >= WAKE_BATCH
        await self.catch_up(
            list(self._subscriptions) if overrun else woken & self._subscriptions.keys()
        )
