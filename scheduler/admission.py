"""The door: who is let in, who attaches to a job that runs, who gets an outcome that exists.

One script decides, so of two gateways that race for the last place exactly one gets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

from scheduler.asking import asking
from scheduler.scripts import AsyncScripts
from shared.errors import SpeechError
from shared.messages import INTERACTIVE

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from shared.messages import SpeechJob
    from shared.settings import QueueSettings

Kind = Literal["admitted", "attached", "replay"]

NO_WORKER_RETRY_S: Final = 2.0
MIN_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class AdmitRequest:
    """A validated request at the door.

    ``principal`` is whose ids these are, ``queue`` the artifact's queue, ``fingerprint`` what
    shapes the speech, ``timeout_ms`` counts from now on Redis's clock. ``facts`` outlive the job
    and its text: they are kept with the outcome for whoever reads it. ``priority`` is the class:
    ``interactive`` or ``batch``.
    """

    principal: str
    queue: str
    fingerprint: str
    timeout_ms: int
    job: SpeechJob
    facts: Mapping[str, Any] = field(default_factory=dict)
    priority: str = INTERACTIVE


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job that answers the request: a new one, one that runs already, or one that has ended.

    ``kept_ms``: for how long the audio of one that has ended will still be there.
    """

    job_id: str
    kind: Kind
    kept_ms: int | None = None


class Admission:
    """Admits requests of one gateway."""

    def __init__(self, redis: Redis, settings: QueueSettings) -> None:
        self._redis = redis
        self._settings = settings
        self._scripts = AsyncScripts(redis, settings.namespace)

    def new_job_id(self) -> str:
        """Ids are ours, never a caller's, and legal for RQ."""
        return f"{self._settings.namespace}-{uuid4().hex}"

    async def admit(self, request: AdmitRequest, job_id: str, listener: str) -> Admitted:
        """Decide about one request; on ``admitted`` and ``attached`` the caller is a listener.

        Raises :class:`SpeechError`: ``request_id_conflict``, ``cancelled``, ``no_ready_worker``,
        ``queue_full``, ``too_many_waiting``, ``deadline_unmeetable``, ``queue_unavailable``,
        ``queue_memory_low``.
        """
        settings = self._settings
        with asking(self._redis):
            reply = await self._scripts.call(
                "admit",
                job_id,
                request.principal,
                request.job.request_id,
                request.job.cancellation_id or "",
                request.queue,
                request.fingerprint,
                request.job.to_bytes(),
                request.timeout_ms,
                listener,
                settings.listener_ttl_ms,
                settings.min_queue_depth,
                settings.queue_depth_per_lane,
                settings.max_queue_depth,
                settings.max_waiting_per_principal,
                json.dumps(dict(request.facts)),
                request.priority,
                request.job.max_frames,
            )
            return _decided(job_id, *(part.decode() for part in reply))


def _decided(job_id: str, verdict: str, *rest: str) -> Admitted:
    """What the script says. Raises SpeechError for a refusal."""
    if verdict == "admitted":
        return Admitted(job_id, "admitted")
    if verdict == "attached":
        return Admitted(rest[0], "attached")
    if verdict == "replay":
        return Admitted(rest[0], "replay", int(rest[1]))
    raise _refusal(verdict, rest)


def _refusal(verdict: str, facts: Sequence[str]) -> SpeechError:
    if verdict == "conflict":
        return SpeechError(
            "request_id_conflict",
            "this request_id was used for a different request",
            param="request_id",
        )
    if verdict == "cancelled":
        return SpeechError("cancelled", "the request was cancelled before it arrived")
    if verdict == "no_ready_worker":
        return SpeechError(
            "no_ready_worker",
            "no ready worker serves this artifact",
            retry_after_s=NO_WORKER_RETRY_S,
        )
    wait_s = max(MIN_RETRY_S, int(facts[-1]) / 1000)
    messages = {
        "queue_full": "the queue is full",
        "too_many_waiting": "too many requests of this caller are waiting",
        "deadline_unmeetable": "the request can't be finished within its timeout",
    }
    return SpeechError(verdict, messages[verdict], retry_after_s=wait_s)
