"""How a worker's runtime stands: what it serves on, or why it doesn't."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import PENDING_PHASES, SpeechError
from shared.messages import NOT_ACCELERATED, NOTHING


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker can't serve, and what an operator has to do about it."""

    code: str
    reason: str
    pending_phases: tuple[str, ...]

    @classmethod
    def of(cls, error: SpeechError) -> Refusal:
        phases = PENDING_PHASES.get(error.code, PENDING_PHASES["csm_runtime_load_failed"])
        return cls(error.code, error.message, phases)


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """How the runtime stands. Before ``ready`` the served side says ``none``."""

    state: str
    refusal: Refusal | None
    requested_backend: str
    backend: str
    execution_engine: str
    residency: str
    accelerated_backend: str
    gpu_model: str
    cpu_fallback_reason: str | None
    loaded_at_unix_ms: int | None
    load_latency_ms: int | None
    tokenizer_loaded: bool
    csm_config_loaded: bool
    csm_model_loaded: bool
    mimi_loaded: bool
    lanes: int
    determinism_class: str
    memory_required_bytes: int | None
    warm_step_ms: float | None = None

    @classmethod
    def not_ready(cls, requested_backend: str, state: str) -> RuntimeFacts:
        """Of what serves nothing, because it is still ``loading`` or is ``unavailable``."""
        return cls(
            state=state,
            refusal=None,
            requested_backend=requested_backend,
            backend=NOTHING,
            execution_engine=NOTHING,
            residency=state,
            accelerated_backend=NOT_ACCELERATED,
            gpu_model=NOTHING,
            cpu_fallback_reason=None,
            loaded_at_unix_ms=None,
            load_latency_ms=None,
            tokenizer_loaded=False,
            csm_config_loaded=False,
            csm_model_loaded=False,
            mimi_loaded=False,
            lanes=0,
            determinism_class=NOTHING,
            memory_required_bytes=None,
        )
