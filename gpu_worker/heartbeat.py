"""What a worker says of itself: one flat document per heartbeat, for people and autoscalers."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog

from gpu_worker.for_show import for_show
from shared.clock import Countdown, unix_ms
from shared.messages import READY

if TYPE_CHECKING:
    from gpu_worker.facts import RuntimeFacts
    from gpu_worker.telemetry import Usage
    from scheduler.carrier import Carrier
    from scheduler.queue import WorkQueue
    from shared.governance.artifacts import Artifact
    from shared.settings import WorkerSettings

BACKGROUND: Final = "background"

SHOWN_AGAIN_MS: Final = 10_000.0
"""How long RQ's tools are shown nothing new after it failed, as it does while Redis is full."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServedArtifact:
    """The artifact that a worker serves, and its queue's name; empty when none could be read."""

    artifact_id: str = ""
    artifact_digest: str = ""
    queue: str = ""

    @classmethod
    def of(cls, artifact: Artifact, namespace: str) -> ServedArtifact:
        return cls(artifact.artifact_id, artifact.digest, artifact.queue_name(namespace))


@dataclass(frozen=True, slots=True)
class Identity:
    """What doesn't change while the process lives."""

    worker_id: str
    host: str
    pid: int
    started_at_unix_ms: int

    @classmethod
    def of_this_process(cls) -> Identity:
        """A new id each time: a worker that is started again is another worker."""
        host = socket.gethostname()
        label = re.sub(r"[^A-Za-z0-9.-]+", "-", host)
        pid = os.getpid()
        return cls(f"{label}-{pid}-{uuid4().hex[:8]}", host, pid, unix_ms())


def document(
    identity: Identity,
    served: ServedArtifact,
    settings: WorkerSettings,
    facts: RuntimeFacts,
    usage: Usage,
    state: str,
    in_flight: int,
) -> dict[str, Any]:
    """One worker's entry of ``workers[]``. ``state``: loading, ready, unavailable, draining."""
    return {
        **asdict(identity),
        "state": state,
        "requested_backend": facts.requested_backend,
        "served_backend": facts.backend,
        "execution_engine": facts.execution_engine,
        "accelerated_backend": facts.accelerated_backend,
        "residency": facts.residency,
        "gpu_model": facts.gpu_model,
        "gpu_model_label": settings.gpu_model_label,
        "artifact_id": served.artifact_id,
        "artifact_digest": served.artifact_digest,
        "queue": served.queue,
        "lanes": facts.lanes,
        "in_flight": in_flight,
        "memory_required_bytes": facts.memory_required_bytes,
        "memory_used_bytes": usage.memory_used_bytes,
        "utilization": usage.utilization,
        "loaded_at_unix_ms": facts.loaded_at_unix_ms,
        "load_latency_ms": facts.load_latency_ms,
        "tokenizer_loaded": facts.tokenizer_loaded,
        "csm_config_loaded": facts.csm_config_loaded,
        "csm_model_loaded": facts.csm_model_loaded,
        "mimi_loaded": facts.mimi_loaded,
        "refusal": None if facts.refusal is None else asdict(facts.refusal),
        "cpu_fallback_reason": facts.cpu_fallback_reason,
        "image_ref": settings.runtime_image_ref,
        "determinism_class": facts.determinism_class,
    }


class Heartbeat:
    """Says how one worker stands, to Redis and to RQ's tools. ``said``: the state, as last told."""

    def __init__(
        self,
        settings: WorkerSettings,
        identity: Identity,
        served: ServedArtifact,
        queue: WorkQueue,
        carrier: Carrier,
    ) -> None:
        self._settings, self._identity, self._served = settings, identity, served
        self._queue, self._carrier = queue, carrier
        self.said = ""
        self._due = Countdown(0)
        self._is_registered = False
        self._rest = Countdown(0)

    @property
    def remaining_ms(self) -> float:
        return self._due.remaining_ms

    def is_due(self, state: str) -> bool:
        """Every now and then, and at once when the state has changed."""
        return self._due.over or state != self.said

    def beat(
        self,
        state: str,
        facts: RuntimeFacts,
        usage: Usage,
        *,
        in_flight: int,
        is_busy: bool,
        is_anew: bool,
    ) -> None:
        """``is_anew``: Redis was away, and may not be the same one."""
        told = document(
            self._identity, self._served, self._settings, facts, usage, state, in_flight
        )
        lanes = facts.lanes if state == READY else 0
        self._queue.heartbeat(told, lanes=lanes, step_ms=facts.warm_step_ms)
        if state != self.said:
            log.info("worker_state", state=state, lanes=facts.lanes)
        self.said, self._due = state, Countdown(self._settings.queue.renew_ms)
        if self._rest.over or is_anew:
            self._rest = Countdown(SHOWN_AGAIN_MS)
            with for_show("beat"):
                self._register(state, is_anew=is_anew)
                self._carrier.beat(busy=is_busy)
                self._rest = Countdown(0)

    def _register(self, state: str, *, is_anew: bool) -> None:
        """Be seen by RQ's tools: with a synchronous start only once the model is there."""
        if is_anew and self._is_registered:
            self._carrier.death()
            self._is_registered = False
        is_wanted = state == READY or self._settings.startup_load_mode == BACKGROUND
        if self._served.queue and is_wanted and not self._is_registered:
            self._carrier.birth(self._identity.worker_id)
            self._is_registered = True
