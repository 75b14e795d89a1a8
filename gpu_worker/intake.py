"""How a worker gets a job: RQ says that there is work, the claim script says which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from redis.exceptions import ResponseError

from gpu_worker.link import for_show
from scheduler.connections import is_full
from scheduler.queue import ALONE
from shared.clock import Countdown

if TYPE_CHECKING:
    from scheduler.carrier import Carrier
    from scheduler.queue import Claim, WorkQueue

HOLD_MS: Final = 100.0
"""How long a worker whose lanes are busy lets a job lie that must run alone."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim, and the id that RQ handed over for it, if it could."""

    claim: Claim
    hint: str | None


class Intake:
    """Pulls ids and claims jobs, one at a time.

    An id that was pulled stays pending until its claim is decided, with the same execution id: a
    claim whose reply was lost is found again by it.
    """

    def __init__(self, carrier: Carrier, queue: WorkQueue) -> None:
        self._carrier = carrier
        self._queue = queue
        self._hint: str | None = None
        self._execution = uuid4().hex
        self._hold = Countdown(0)

    def take(self, busy_lanes: int, wait_s: float | None) -> Taken | None:
        """The next job for a free lane; None if there is none within ``wait_s`` (None: now)."""
        if self._hint is None:
            if busy_lanes and not self._hold.over:
                return None
            try:
                self._hint = self._carrier.pull(wait_s)
            except ResponseError as error:
                if not is_full(error):
                    raise
                return self._take_without_rq(busy_lanes, error)
        if self._hint is None:
            return None
        hint = self._hint
        claim = self._queue.claim(self._execution, hint=hint, busy_lanes=busy_lanes)
        self._hint, self._execution = None, uuid4().hex
        if claim is None:
            self._drop(hint)
            return None
        if claim == ALONE:
            self._leave_for_an_idle_worker(hint)
            return None
        return Taken(claim, hint)

    def _take_without_rq(self, busy_lanes: int, full: ResponseError) -> Taken:
        """A full Redis lets RQ move no id from list to list. Our claim frees before it writes, and
        takes its job off the list: what was let in is served. Raises ``full`` if that is nothing.
        """
        claim = self._queue.claim(self._execution, busy_lanes=busy_lanes)
        self._execution = uuid4().hex
        if claim is None or claim == ALONE:
            raise full
        return Taken(claim, None)

    def _leave_for_an_idle_worker(self, hint: str) -> None:
        self._hold = Countdown(HOLD_MS)
        with for_show("push"):
            self._carrier.push(hint, at_front=True)
        self._drop(hint)

    def _drop(self, hint: str) -> None:
        with for_show("drop"):
            self._carrier.drop(hint)
