"""A worker's side of one artifact's queue: claim, post, renew, end, hand back.

Every call is one script, so a process may die between any two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import structlog

from scheduler import events
from scheduler.connections import TROUBLE, reading
from scheduler.scripts import Scripts
from shared.keys import Keys
from shared.messages import FrameRecord, MalformedMessage, SpeechJob, Terminal

if TYPE_CHECKING:
    from redis import Redis

    from scheduler.carrier import Carrier
    from shared.settings import QueueSettings

Verdict = Literal["ok", "cancelled", "lost"]
EndVerdict = Literal["ended", "lost", "cancelled", "early"]
BackVerdict = Literal["waiting", "ended", "lost"]

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
END_VERDICTS: Final[tuple[EndVerdict, ...]] = get_args(EndVerdict)
BACK_VERDICTS: Final[tuple[BackVerdict, ...]] = get_args(BackVerdict)
Word = TypeVar("Word")

ALONE: Final = "solo"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that is ours until its lease lapses. Times in milliseconds.

    ``delivered``: the frames that earlier attempts posted, in order. ``solo``: an earlier attempt
    broke its worker, so the job runs with no neighbours.
    """

    job_id: str
    execution: str
    attempt: int
    remaining_ms: int
    queue_wait_ms: int
    solo: bool
    job: SpeechJob
    delivered: tuple[FrameRecord, ...]


@dataclass(frozen=True, slots=True)
class LanePost:
    """One lane's news of a step: a frame, or None to ask only whether to go on."""

    job_id: str
    execution: str
    frame: FrameRecord | None


@dataclass(frozen=True, slots=True)
class EndOutcome:
    """``early`` carries the time that is left because another caller may wait longer."""

    verdict: EndVerdict
    remaining_ms: int = 0


class WorkQueue:
    """One artifact's queue for one worker."""

    def __init__(
        self, redis: Redis, settings: QueueSettings, carrier: Carrier, queue: str, worker_id: str
    ) -> None:
        self._redis = redis
        self._settings = settings
        self._carrier = carrier
        self._queue = queue
        self._worker_id = worker_id
        self._keys = Keys(settings.namespace)
        self._scripts = Scripts(redis, settings.namespace)
        self._ending = settings.ending

    def claim(
        self, execution: str, *, hint: str = "", busy_lanes: int = 0
    ) -> Claim | Literal["solo"] | None:
        """Take the first waiting job. None: there is none. ``"solo"``: it must run alone, ask again
        when no lane is busy. ``hint`` is the id that RQ handed over.

        A job whose payload or frames can't be read ends as an error, and the next one is tried.
        """
        while True:
            with reading(self._redis):
                reply: list[bytes] = self._scripts.call(
                    "claim",
                    self._queue,
                    self._worker_id,
                    execution,
                    hint,
                    self._settings.lease_ms,
                    busy_lanes,
                    *self._ending,
                    keys=(self._carrier.list_key,),
                )
                if reply == []:
                    return None
                if reply == [b"solo"]:
                    return ALONE
                job_id, payload, attempt, remaining_ms, queue_wait_ms, frames, solo = reply
                try:
                    return Claim(
                        job_id=job_id.decode(),
                        execution=execution,
                        attempt=int(attempt),
                        remaining_ms=int(remaining_ms),
                        queue_wait_ms=int(queue_wait_ms),
                        solo=solo == b"1",
                        job=SpeechJob.from_bytes(payload),
                        delivered=self._delivered(job_id.decode()) if int(frames) else (),
                    )
                except MalformedMessage as error:
                    self._refuse(job_id.decode(), execution, str(error))

    def post(self, lanes: Sequence[LanePost]) -> list[Verdict]:
        """Post one step's frames in one round trip and learn which lanes must stop."""
        if not lanes:
            return []
        args: list[str | bytes | int] = []
        for lane in lanes:
            args += (lane.job_id, lane.execution)
            frame = lane.frame
            args += ("", b"") if frame is None else (frame.index, frame.pack())
        with reading(self._redis):
            return _verdicts(self._scripts.call("post", *args), len(lanes))

    def renew(self, leases: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Renew the leases of (job, execution) pairs."""
        if not leases:
            return []
        flat = [part for lease in leases for part in lease]
        with reading(self._redis):
            reply = self._scripts.call("renew", self._queue, self._settings.lease_ms, *flat)
            return _verdicts(reply, len(leases))

    def end(self, job_id: str, execution: str, terminal: Terminal) -> EndOutcome:
        """State how the job ended. Outcome and evidence are kept for replays."""
        told = terminal.to_bytes()
        with reading(self._redis):
            verdict, *rest = self._scripts.call(
                "end",
                job_id,
                execution,
                terminal.finish_reason,
                terminal.failure_code or "",
                terminal.message,
                told,
                *self._ending,
            )
            return EndOutcome(_one_of(END_VERDICTS, verdict), *map(int, rest))

    def hand_back(self, job_id: str, execution: str, *, fault: bool = False) -> BackVerdict:
        """Give the job back to the front: ``waiting``, ``ended`` or ``lost``.

        With ``fault`` the attempt counts and the job runs alone next time; without (draining) it is
        as if it had never been claimed.
        """
        with reading(self._redis):
            reply = self._scripts.call(
                "hand_back",
                job_id,
                execution,
                "1" if fault else "0",
                self._settings.max_attempts,
                *self._ending,
            )
            verdict = _one_of(BACK_VERDICTS, reply)
        if verdict == "waiting":
            try:
                self._carrier.push(job_id, at_front=True)
            except TROUBLE as error:  # the job is back all the same: the reaper pushes it again
                log.warning("hint_lost", job=job_id, error=type(error).__name__)
        return verdict

    def heartbeat(
        self, document: dict[str, Any], *, lanes: int, step_ms: float | None = None
    ) -> None:
        """Say that this worker lives, what it is, and how many lanes it offers (0: none now).

        ``step_ms`` is what a step took while it warmed up, which waits are estimated with until
        the first jobs have ended.
        """
        self._scripts.call(
            "heartbeat",
            self._worker_id,
            self._queue,
            lanes,
            self._settings.lease_ms,
            json.dumps(document),
            "" if step_ms is None else f"{step_ms:.3f}",
        )

    def farewell(self) -> None:
        """Leave the registrations at once instead of letting them lapse."""
        with reading(self._redis), self._redis.pipeline() as pipe:
            lanes: Any = self._redis.zrange(self._keys.lanes(self._queue), 0, -1)
            pipe.delete(self._keys.worker(self._worker_id))
            pipe.zrem(self._keys.workers, self._worker_id)
            for member in lanes:
                if member.rpartition(b"|")[0] == self._worker_id.encode():
                    pipe.zrem(self._keys.lanes(self._queue), member)
            pipe.execute()

    def _delivered(self, job_id: str) -> tuple[FrameRecord, ...]:
        entries: Any = self._redis.xrange(self._keys.events(job_id))
        parsed = (events.parse(fields) for _, fields in entries)
        return tuple(event for event in parsed if isinstance(event, FrameRecord))

    def _refuse(self, job_id: str, execution: str, why: str) -> None:
        log.error("job_refused", job=job_id, why=why)
        self._scripts.call(
            "end",
            job_id,
            execution,
            "error",
            "internal_error",
            "the job's record could not be read",
            b"",
            *self._ending,
        )


def _verdicts(reply: list[bytes], count: int) -> list[Verdict]:
    """One for each lane. Raises ValueError for anything else."""
    if len(reply) != count:
        raise ValueError(f"{len(reply)} verdicts on {count} lanes")
    return [_one_of(VERDICTS, verdict) for verdict in reply]


def _one_of(known: tuple[Word, ...], said: bytes) -> Word:
    """The word that was said. Raises ValueError if it is none of those that are known."""
    return known[known.index(said.decode())]
