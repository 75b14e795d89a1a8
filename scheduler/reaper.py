"""Puts right what dead processes left behind. Idempotent: every worker and the scheduler run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis.exceptions import OutOfMemoryError, ResponseError

from scheduler.carrier import Carrier
from scheduler.connections import reading
from scheduler.scripts import Scripts, is_damage
from shared.keys import Keys

if TYPE_CHECKING:
    from redis import Redis

    from shared.settings import QueueSettings

BATCH: Final = 1000
SLICE: Final = 200
"""So many live jobs are looked at in one call, which holds Redis for a few milliseconds."""
FORGET_EVERY: Final = 30
"""In one of so many rounds what RQ shows of the dead is looked for, all of it at once."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReapReport:
    """What one pass over one queue did. ``held``: leases and listeners may not lapse now.

    ``silent``: the ids of workers whose leases lapsed. ``calls``: how many slices of its jobs were
    looked at.
    """

    queue: str
    held: bool
    returned: int
    lost: int
    expired: int
    abandoned: int
    pushed: int
    swept: int
    silent: tuple[str, ...] = ()
    calls: int = 1

    @property
    def eventful(self) -> bool:
        counts = (self.returned, self.lost, self.expired, self.abandoned, self.pushed)
        return any(counts) or bool(self.silent)

    def plus(self, other: ReapReport) -> ReapReport:
        """Both as one; of ``held`` what was found last."""
        return ReapReport(
            self.queue,
            other.held,
            self.returned + other.returned,
            self.lost + other.lost,
            self.expired + other.expired,
            self.abandoned + other.abandoned,
            self.pushed + other.pushed,
            self.swept + other.swept,
            tuple(dict.fromkeys(self.silent + other.silent)),
            self.calls + other.calls,
        )


class Reaper:
    """Reaps every queue of a namespace.

    ``gap_ms``: leave a queue alone that anyone has reaped within that time. Workers do, so that a
    hundred of them reap hardly more often than two. ``most``: so many lost hints and leftovers of
    RQ's go in one pass, each of which is a round trip; whoever has lanes to serve asks for few.
    ``calls``: so many slices of a queue's jobs are looked at in one pass; 0: all.
    """

    def __init__(
        self,
        redis: Redis,
        settings: QueueSettings,
        *,
        gap_ms: int = 0,
        most: int = BATCH,
        calls: int = 0,
        slice_: int = SLICE,
    ) -> None:
        self._gap_ms = gap_ms
        self._most = most
        self._calls = calls
        self._slice = slice_
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.namespace)
        self._scripts = Scripts(redis, settings.namespace)
        self._carriers: dict[str, Carrier] = {}
        self._places: dict[str, str] = {}
        self._rounds = 0

    @property
    def unfinished(self) -> bool:
        """Whether the last pass left jobs to look at: the next one goes on with them."""
        return bool(self._places)

    def reap(self) -> list[ReapReport]:
        """One pass: lapsed leases, overdue and abandoned jobs, lost hints, RQ's leftovers."""
        begins = not self.unfinished
        self._rounds += begins
        forgets = begins and self._rounds % FORGET_EVERY == 1
        with reading(self._redis):
            return [self._reap(name, forgets=forgets) for name in self._queues()]

    def _queues(self) -> list[str]:
        if self._places:
            return sorted(self._places)
        try:
            names: Any = self._redis.smembers(self._keys.queues)
            if not names:  # a write that changes nothing: whoever can't reap must not seem to
                self._redis.srem(self._keys.queues, "")
        except ResponseError as error:
            if not is_damage(error):
                raise
            self._scripts.mend()
            return []  # heartbeats and admissions name them again
        return sorted(filter(None, map(self._name, names)))

    def _name(self, name: bytes) -> str | None:
        """A queue's name as text; None of what is none, which is removed."""
        try:
            return name.decode()
        except UnicodeDecodeError:
            self._redis.srem(self._keys.queues, name)
            log.error("keys_mended", count=1)
            return None

    def _reap(self, queue: str, *, forgets: bool) -> ReapReport:
        carrier = self._carriers.get(queue)
        if carrier is None:
            carrier = Carrier(self._redis, self._settings.namespace, queue)
            self._carriers[queue] = carrier
        report = self._look(queue, carrier)
        while queue in self._places and report.calls != self._calls:
            report = report.plus(self._look(queue, carrier))
        if forgets:
            carrier.forget_the_dead()
        if report.eventful:
            log.info(
                "reaped",
                queue=queue,
                returned=report.returned,
                lost=report.lost,
                expired=report.expired,
                abandoned=report.abandoned,
                pushed=report.pushed,
                silent_workers=report.silent,
            )
        return report

    def _look(self, queue: str, carrier: Carrier) -> ReapReport:
        """Look at one slice of the queue's jobs."""
        reply = self._scripts.call(
            "reap",
            queue,
            self._settings.max_attempts,
            self._settings.lease_ms,
            max(2000, 3 * self._settings.reap_interval_ms),
            self._slice,
            *self._settings.ending,
            self._gap_ms,
            self._most,
            self._places.pop(queue, ""),
            keys=(carrier.list_key,),
        )
        if place := reply[0].decode():
            self._places[queue] = place
        held, returned, lost, expired, abandoned = (int(value) for value in reply[1:6])
        silent, count, *job_ids = (part.decode() for part in reply[6:])
        missing, leftovers = job_ids[: int(count)], job_ids[int(count) :]
        carrier.forget(leftovers)  # frees, so it comes first
        pushed = _push(carrier, missing)
        return ReapReport(
            queue,
            bool(held),
            returned,
            lost,
            expired,
            abandoned,
            pushed,
            len(leftovers),
            tuple(silent.split()),
        )


def _push(carrier: Carrier, job_ids: list[str]) -> int:
    """Give RQ these ids, as many as a Redis that may be full takes. The rest waits for a pass."""
    for count, job_id in enumerate(job_ids):
        try:
            carrier.push(job_id)
        except OutOfMemoryError:
            log.warning("hints_lost", count=len(job_ids) - count)
            return count
    return len(job_ids)
