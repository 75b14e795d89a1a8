"""What the workers of one artifact add up to, from what each says of itself.

A worker's document is read tolerantly: an older or newer worker may leave keys out or add some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.asking import QueueAway
from shared.errors import BACKEND_UNAVAILABLE, CODES, PENDING_PHASES
from shared.governance.artifacts import Artifact
from shared.messages import (
    DRAINING,
    LOADING,
    NOT_ACCELERATED,
    NOTHING,
    READY,
    UNAVAILABLE,
    Terminal,
)

ACCELERATION: Final = (NOTHING, "cpu", "mps", "cuda")
"""Backends, the least accelerated first."""
LOADED_PARTS: Final = ("tokenizer_loaded", "csm_config_loaded", "csm_model_loaded", "mimi_loaded")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """What serves speech, as headers, errors and terminals say it."""

    requested_backend: str = NOTHING
    backend: str = NOTHING
    execution_engine: str = NOTHING
    runtime_state: str = UNAVAILABLE

    @classmethod
    def by(cls, terminal: Terminal) -> Served:
        """What spoke: the worker's own statement."""
        return cls(terminal.requested_backend, terminal.backend, terminal.execution_engine, READY)


UNSERVED: Final = Served()


def workers_of(artifact: Artifact, workers: Sequence[Document]) -> list[Document]:
    """The workers of this artifact, and those that could not say which they serve."""
    names = (artifact.artifact_id, "", None)
    return [worker for worker in workers if worker.get("artifact_id") in names]


def summarise(workers: Sequence[Document]) -> dict[str, Any]:
    """``runtime`` of the documents, for the workers of one artifact."""
    for state in (READY, LOADING):
        if alike := [worker for worker in workers if worker.get("state") == state]:
            return _described(min(alike, key=_acceleration), state)
    requested = [_text(worker, "requested_backend") for worker in workers]
    return _unavailable(commonest_refusal(workers), *requested[:1])


def queue_away() -> dict[str, Any]:
    """``runtime`` while nothing can be known because Redis is away."""
    away = QueueAway()
    return _unavailable(_refusal(away.code, away.message))


def served(runtime: Document) -> Served:
    """What a runtime summary says is served: nothing, unless it is ready."""
    if runtime["state"] != READY:
        return Served(runtime["requested_backend"], runtime_state=runtime["state"])
    return Served(
        runtime["requested_backend"], runtime["backend"], runtime["execution_engine"], READY
    )


def served_by(worker: Document) -> Served:
    """What a worker that speaks serves, also while it drains."""
    return served(_described(worker, READY))


def refusal_code(workers: Sequence[Document]) -> str:
    """Why nobody takes a job: the code of the refusal at the door."""
    states = {worker.get("state") for worker in workers}
    if LOADING in states:
        return "runtime_unavailable"
    if states == {DRAINING}:
        return "draining"
    if states == {UNAVAILABLE}:
        code = str(commonest_refusal(workers)["code"])
        if code in CODES and CODES[code].type == BACKEND_UNAVAILABLE:
            return code
    return "no_ready_worker"


def commonest_refusal(workers: Sequence[Document]) -> dict[str, Any]:
    """The refusal that most workers give; with none alive, that there are none."""
    refusals = [worker["refusal"] for worker in workers if worker.get("refusal")]
    if refusals:
        counts = Counter(str(refusal.get("code")) for refusal in refusals)
        commonest = counts.most_common(1)[0][0]
        found = next(each for each in refusals if str(each.get("code")) == commonest)
        phases = found.get("pending_phases") or PENDING_PHASES.get(commonest, ())
        return {
            "code": commonest,
            "reason": str(found.get("reason", "")),
            "pending_phases": list(phases),
        }
    if any(worker.get("state") == DRAINING for worker in workers):
        return _refusal("draining", "every worker is draining", "start_another_worker")
    return _refusal("no_ready_worker", "no worker serves this artifact", "start_a_worker")


def _refusal(code: str, reason: str, *phases: str) -> dict[str, Any]:
    return {"code": code, "reason": reason, "pending_phases": list(phases)}


def _acceleration(worker: Document) -> int:
    backend = worker.get("served_backend")
    return ACCELERATION.index(backend) if backend in ACCELERATION else len(ACCELERATION)


def _described(worker: Document, state: str) -> dict[str, Any]:
    requested = _text(worker, "requested_backend")
    return {
        "requested_backend": requested,
        "residency": LOADING if state == LOADING else _text(worker, "residency"),
        "backend": _text(worker, "served_backend", requested if state == LOADING else NOTHING),
        "execution_engine": _text(worker, "execution_engine"),
        "state": state,
        "loaded_at_unix_ms": worker.get("loaded_at_unix_ms"),
        "load_latency_ms": worker.get("load_latency_ms"),
        **{part: bool(worker.get(part, state == READY)) for part in LOADED_PARTS},
        "accelerated_backend": _text(worker, "accelerated_backend", "unknown"),
        "gpu_model": _text(worker, "gpu_model"),
        "cpu_fallback_reason": worker.get("cpu_fallback_reason"),
        "refusal": None,
    }


def _unavailable(refusal: dict[str, Any], requested_backend: str = NOTHING) -> dict[str, Any]:
    return {
        "requested_backend": requested_backend,
        "residency": UNAVAILABLE,
        "backend": NOTHING,
        "execution_engine": NOTHING,
        "state": UNAVAILABLE,
        "loaded_at_unix_ms": None,
        "load_latency_ms": None,
        **dict.fromkeys(LOADED_PARTS, False),
        "accelerated_backend": NOT_ACCELERATED,
        "gpu_model": NOTHING,
        "cpu_fallback_reason": None,
        "refusal": refusal,
    }


def _text(worker: Document, name: str, default: str = NOTHING) -> str:
    value = worker.get(name)
    return value if isinstance(value, str) and value else default
