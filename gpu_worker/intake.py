"""How a worker gets a job: RQ says that there is work, the claim script says which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from redis.exceptions import ResponseError

from gpu_worker.for_show import for_show
from scheduler.connections import is_full
from scheduler.queue import ALONE
from shared.clock import Countdown

if TYPE_CHECKING:
    from scheduler.carrier import Carrier
    from scheduler.queue import Claim, WorkQueue

HOLD_MS: Final = 100.0
"""How long a worker whose lanes are busy lets a job lie that must run alone."""
FIRST_PAUSE_MS: Final = 100.0
LONGEST_PAUSE_MS: Final = 1000.0
"""How long nobody asks again after a full Redis had no job: the first time, and the longest."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A claim, and the id that RQ handed over for it, if it could."""

    claim: Claim
    hint: str | None


class Intake:
    """Pulls ids and claims jobs, one at a time.

    A claim is undecided until its reply was read. It is asked again before anything else, with the
    same execution id: a claim whose reply was lost is found again by it.
    """

    def __init__(self, carrier: Carrier, queue: WorkQueue) -> None:
        self._carrier = carrier
        self._queue = queue
        self._hint: str | None = None
        self._execution = uuid4().hex
        self._is_undecided = False
        self._hold = Countdown(0)
        self._pause = Countdown(0)
        self._pause_ms = FIRST_PAUSE_MS

    @property
    def due(self) -> bool:
        """Whether it is worth asking now, and waiting for what comes."""
        return self._is_undecided or self._pause.over

    def take(self, busy_lanes: int, wait_s: float | None) -> Taken | None:
        """The next job for a free lane; None if there is none within ``wait_s`` (None: now)."""
        if not self._is_undecided:
            if not self._pause.over or (busy_lanes and not self._hold.over):
                return None
            if not self._pull(wait_s):
                return None
        return self._claim(busy_lanes)

    def _pull(self, wait_s: float | None) -> bool:
        """Whether there may be a job. A full Redis lets RQ move no id from list to list; our claim
        frees before it writes, and takes its job off the list: what was let in is served.
        """
        try:
            self._hint = self._carrier.pull(wait_s)
        except ResponseError as error:
            if not is_full(error):
                raise
            return True
        self._pause_ms = FIRST_PAUSE_MS
        return self._hint is not None

    def _claim(self, busy_lanes: int) -> Taken | None:
        hint = self._hint
        self._is_undecided = True
        claim = self._queue.claim(self._execution, hint=hint or "", busy_lanes=busy_lanes)
        self._hint, self._execution, self._is_undecided = None, uuid4().hex, False
        if claim == ALONE:
            self._leave_for_an_idle_worker(hint)
        elif claim is not None:
            return Taken(claim, hint)
        elif hint is None:
            self._rest()
        else:
            self._drop(hint)
        return None

    def _rest(self) -> None:
        self._pause = Countdown(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _leave_for_an_idle_worker(self, hint: str | None) -> None:
        self._hold = Countdown(HOLD_MS)
        if hint is None:
            return
        with for_show("push"):
            self._carrier.push(hint, at_front=True)
        self._drop(hint)

    def _drop(self, hint: str) -> None:
        with for_show("drop"):
            self._carrier.drop(hint)
