"""What became of a request, by its id: for retries, for callers that lost their connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler import events
from scheduler.asking import asking
from shared.keys import Keys
from shared.messages import End, FrameRecord

if TYPE_CHECKING:
    from redis.asyncio import Redis

READ_AT_ONCE: Final = 32
"""Frames in one reply, of 4 KiB each."""


@dataclass(frozen=True, slots=True)
class BusinessOutcome:
    """What was said of a request, and when, on Redis's clock."""

    text: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as Redis has it. ``end`` is None while it lives; ``facts`` are the gateway's.

    ``admitted_ms`` is on Redis's clock. ``business_outcome``: what the caller's business
    said afterwards.
    """

    job_id: str
    request_id: str
    cancellation_id: str | None
    state: str
    attempt: int
    frame_count: int
    end: End | None
    facts: dict[str, Any]
    admitted_ms: int
    business_outcome: BusinessOutcome | None


class Results:
    """Reads jobs and their kept audio. Reading is not listening: it keeps nothing alive."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._keys = Keys(namespace)

    async def find(self, principal: str, request_id: str) -> JobRecord | None:
        """The job that this principal's request id is bound to."""
        with asking(self._redis):
            job_id: Any = await self._redis.get(self._keys.request(principal, request_id))
            found = None if job_id is None else job_id.decode()
        return None if found is None else await self.read(found)

    async def read(self, job_id: str) -> JobRecord | None:
        with asking(self._redis):
            job: Any = await self._redis.hgetall(self._keys.job(job_id))
            return _record(job_id, job) if job else None

    async def clock(self, job_id: str) -> tuple[int, int]:
        """Now on Redis's clock, and for how long this job's record is still kept, in ms."""
        with asking(self._redis):
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.time()
                pipe.pttl(self._keys.job(job_id))
                (seconds, micros), left_ms = await pipe.execute()
            return seconds * 1000 + micros // 1000, max(0, left_ms)

    async def kept_ms(self, job_id: str) -> int:
        """For how long the audio of a job that has ended will still be there; 0 if it isn't."""
        with asking(self._redis):
            left: Any = await self._redis.pttl(self._keys.events(job_id))
            return max(0, int(left))

    async def frames(self, job_id: str) -> AsyncIterator[FrameRecord]:
        """The frames of a job, in order, read a few at a time; none once they are not kept."""
        start = "-"
        while True:
            with asking(self._redis):
                entries: Any = await self._redis.xrange(
                    self._keys.events(job_id), min=start, count=READ_AT_ONCE
                )
                found = [events.parse(fields) for _, fields in entries]
                start = f"({entries[-1][0].decode()}" if entries else start
            for event in found:
                if isinstance(event, FrameRecord):
                    yield event
            if len(found) < READ_AT_ONCE:
                return


def _record(job_id: str, job: dict[bytes, bytes]) -> JobRecord:
    turn = job.get(b"cancellation_id")
    return JobRecord(
        job_id=job_id,
        request_id=job[b"request_id"].decode(),
        cancellation_id=None if turn is None else turn.decode(),
        state=job[b"state"].decode(),
        attempt=int(job[b"attempt"]),
        frame_count=int(job[b"frames"]),
        end=_end(job) if job[b"state"] == b"ended" else None,
        facts=json.loads(job[b"facts"]),
        admitted_ms=int(job[b"admitted_ms"]),
        business_outcome=_business_outcome(job),
    )


def _end(job: dict[bytes, bytes]) -> End:
    return events.parse_end(job, reason=b"finish_reason", code=b"failure_code")


def _business_outcome(job: dict[bytes, bytes]) -> BusinessOutcome | None:
    text = job.get(b"business_outcome")
    if text is None:
        return None
    return BusinessOutcome(text.decode(), int(job[b"business_outcome_ms"]))
