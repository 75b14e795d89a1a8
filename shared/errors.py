"""Every refusal and failure of the service: its code, HTTP status, type and whether to retry.

    SpeechError
     ├─ code      what happened, one of CODES
     ├─ status    400 .. 504, from CODES
     ├─ type      the family that clients branch on, from CODES
     └─ retryable whether the same request may succeed later, from CODES

No other module spells a status or an error type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INVALID: Final = "invalid_request_error"
AUTHENTICATION: Final = "authentication_error"
NOT_FOUND: Final = "not_found_error"
CONFLICT: Final = "conflict_error"
OVERLOADED: Final = "overloaded_error"
GENERATION: Final = "generation_error"
BACKEND_UNAVAILABLE: Final = "backend_unavailable"
TIMEOUT: Final = "timeout_error"
SERVER: Final = "server_error"


@dataclass(frozen=True, slots=True)
class CodeSpec:
    """What one code means on the wire."""

    status: int
    type: str
    retryable: bool = False


def _family(status: int, type_: str, retryable: bool, *codes: str) -> dict[str, CodeSpec]:
    return {code: CodeSpec(status, type_, retryable) for code in codes}


# Why a worker can't serve, and what an operator has to do about it.
PENDING_PHASES: Final[dict[str, tuple[str, ...]]] = {
    "runtime_disabled": ("enable_csm_runtime",),
    "unsupported_backend": ("choose_supported_backend",),
    "accelerator_unavailable": ("deploy_gpu_runtime_or_enable_explicit_cpu_fallback",),
    "artifact_unavailable": ("install_artifact_and_manifest",),
    "llama_tokenizer_unavailable": ("hydrate_gated_hf_artifacts",),
    "csm_config_unavailable": ("hydrate_gated_hf_artifacts",),
    "csm_config_invalid": ("refresh_csm_artifact_cache",),
    "csm_model_unavailable": ("hydrate_gated_hf_artifacts",),
    "mimi_model_unavailable": ("hydrate_gated_hf_artifacts",),
    "csm_runtime_load_failed": ("refresh_csm_artifact_cache", "refresh_mimi_artifact_cache"),
    "csm_cpu_fallback_load_failed": ("refresh_csm_artifact_cache", "refresh_mimi_artifact_cache"),
    "voice_profile_source_unavailable": ("refresh_voice_prompt_codebooks",),
    "voice_profile_descriptor_unavailable": ("refresh_voice_manifest",),
    "voice_profile_digest_mismatch": ("refresh_voice_manifest",),
    "prompt_profile_context_unavailable": ("refresh_voice_prompt_codebooks",),
}

CODES: Final[dict[str, CodeSpec]] = {
    **_family(
        400,
        INVALID,
        False,
        "malformed_json",
        "artifact_unavailable",
        "empty_request_id",
        "invalid_request_id",
        "empty_cancellation_id",
        "invalid_cancellation_id",
        "invalid_timeout_ms",
        "empty_input",
        "invalid_input_text",
        "input_too_long",
        "input_exceeds_budget",
        "invalid_stream_format",
        "unsupported_response_format",
        "voice_profile_unavailable",
        "voice_profile_unapproved",
        "invalid_temperature",
        "invalid_top_k",
        "invalid_max_audio_length_ms",
        "invalid_context_policy",
        "invalid_seed",
        "invalid_voice_turn_budget_ms",
        "invalid_outcome",
        "unknown_parameter",
        "unsupported_parameter",
        "conflicting_parameter",
        "context_overflow",
        "invalid_generation_window",
        "unsupported_sampling",
    ),
    **_family(401, AUTHENTICATION, False, "unauthorized"),
    **_family(404, NOT_FOUND, False, "model_unavailable", "route_not_found", "result_not_found"),
    **_family(405, INVALID, False, "method_not_allowed"),
    **_family(409, CONFLICT, False, "request_id_conflict", "outcome_conflict", "cancelled"),
    **_family(413, INVALID, False, "body_too_large"),
    **_family(415, INVALID, False, "unsupported_media_type"),
    **_family(422, INVALID, False, "invalid_type"),
    **_family(429, OVERLOADED, True, "queue_full", "deadline_unmeetable", "too_many_waiting"),
    **_family(500, SERVER, True, "internal_error"),
    **_family(502, GENERATION, True, "no_audio_generated", "csm_synthesis_failed", "worker_lost"),
    **_family(
        503,
        BACKEND_UNAVAILABLE,
        True,
        "no_ready_worker",
        "runtime_unavailable",
        "draining",
        "queue_unavailable",
        "queue_memory_low",
        *(code for code in PENDING_PHASES if code != "artifact_unavailable"),
    ),
    **_family(504, TIMEOUT, True, "queue_timeout", "generation_timeout"),
}

NO_CAPACITY: Final = (OVERLOADED, BACKEND_UNAVAILABLE)
"""Types of refusals for want of capacity."""
NOT_NOW: Final = frozenset(spec.status for spec in CODES.values() if spec.type in NO_CAPACITY)
"""Their statuses: they say when to come back."""

PROBE_NO: Final = 503
"""The status of a probe's no: the process is dead, or would not serve."""


class SpeechError(Exception):
    """A refusal or failure with a code of ``CODES``; the gateway turns it into the envelope.

    ``message`` is for people and never carries the caller's text. ``param`` names the offending
    request field, ``retry_after_s`` (seconds) becomes the ``Retry-After`` header.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.spec = CODES[code]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def status(self) -> int:
        return self.spec.status

    @property
    def type(self) -> str:
        return self.spec.type

    @property
    def retryable(self) -> bool:
        return self.spec.retryable
