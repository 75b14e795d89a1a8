"""The terminal: everything that is known of a generation, as streams and results state it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from gateway.runtime import Served
from gateway.validation import SpeechCall
from shared import errors
from shared.errors import SpeechError
from shared.governance.artifacts import GOVERNANCE_SCHEMA
from shared.messages import ERROR, LENGTH, READY, STOP, TIMEOUT, Claimed, End
from shared.wav import FRAME_BYTES, FRAME_MS, HEADER_BYTES

GOVERNED_KEYS: Final = (
    "model",
    "artifact_id",
    "governance_schema",
    "license_posture",
    "voice_profile_id",
    "runtime_admission",
    "watermarking",
    "watermarking_refusal_code",
)


class Named(Protocol):
    """A job or the record of one: what a caller knows it by."""

    @property
    def request_id(self) -> str: ...

    @property
    def cancellation_id(self) -> str | None: ...


def lasting_facts(call: SpeechCall) -> dict[str, Any]:
    """The terminal's keys that the request alone decides, for whoever reads its result later."""
    manifest, profile = call.artifact.manifest, call.profile
    return {
        "model": call.model,
        "artifact_id": manifest.artifact_id,
        "governance_schema": GOVERNANCE_SCHEMA,
        "license_posture": manifest.license_posture,
        "voice_profile_id": profile.profile_id,
        "runtime_admission": profile.runtime_admission,
        "watermarking": profile.watermark_policy.status,
        "watermarking_refusal_code": profile.watermark_policy.refusal_code,
        "seed": call.job.seed,
        "source_prompt_profile_id": profile.source_prompt_profile_id,
        "rollback_target": manifest.rollback_target,
    }


def terminal_keys(
    named: Named,
    facts: Mapping[str, Any],
    end: End | None,
    *,
    claimed: Claimed | None = None,
    served: Served | None = None,
    first_audio_ms: int | None = None,
    chunk_count: int = 0,
    failure: SpeechError | None = None,
    replayed: bool = False,
) -> dict[str, Any]:
    """The keys of a terminal event, in the contract's order, each null where it isn't known.

    ``facts`` are ``lasting_facts``. ``claimed``, ``served`` and ``first_audio_ms`` say what was
    seen of a job whose end, or whose worker's own statement, did not arrive.
    """
    terminal = end.terminal if end is not None else None
    frames = terminal.generated_frame_count if terminal is not None else chunk_count
    backend = terminal or served
    return {
        **{key: facts.get(key) for key in GOVERNED_KEYS},
        "backend": _of(backend, "backend"),
        "execution_engine": _of(backend, "execution_engine"),
        "residency": _of(terminal, "residency"),
        "accelerated_backend": _of(terminal, "accelerated_backend"),
        "gpu_model": _of(terminal, "gpu_model"),
        "cpu_fallback_reason": _of(terminal, "cpu_fallback_reason"),
        "generated_frame_count": frames,
        "prompt_frame_count": _of(terminal, "prompt_frame_count"),
        "hit_eos": _of(terminal, "stop_cause") == "eos",
        "first_audio_latency_ms": end.first_audio_latency_ms if end else first_audio_ms,
        "full_generation_latency_ms": _of(end, "full_generation_latency_ms"),
        "output_duration_ms": frames * FRAME_MS,
        "wav_bytes": HEADER_BYTES + frames * FRAME_BYTES if frames else 0,
        "chunk_count": chunk_count,
        "codebook_frames_sha256": _of(terminal, "codebook_frames_sha256"),
        "wav_pcm16_digest": _of(terminal, "wav_pcm16_digest"),
        "pcm16_sha256": _of(terminal, "pcm16_sha256"),
        "request_id": named.request_id,
        "cancellation_id": named.cancellation_id,
        "finish_reason": _reason(end, failure),
        "stop_cause": _of(terminal, "stop_cause"),
        "failure_code": failure.code if failure else None,
        "runtime_state": READY if terminal is not None else _of(served, "runtime_state"),
        "queue_wait_ms": _of(end or claimed, "queue_wait_ms"),
        "seed": facts.get("seed"),
        "attempt": _of(end or claimed, "attempt"),
        "worker_id": _of(terminal or claimed, "worker_id"),
        "source_prompt_profile_id": facts.get("source_prompt_profile_id"),
        "runtime_image_ref": _of(terminal, "runtime_image_ref"),
        "determinism_class": _of(terminal, "determinism_class"),
        "replayed": replayed,
        "fallback_recommended": failure is not None and failure.retryable,
        "rollback_target": facts.get("rollback_target"),
    }


def _reason(end: End | None, failure: SpeechError | None) -> str | None:
    if end is not None and (failure is None or end.finish_reason not in (STOP, LENGTH)):
        return end.finish_reason
    if failure is None:
        return None
    return TIMEOUT if failure.type == errors.TIMEOUT else ERROR


def _of(source: object | None, name: str) -> Any:
    return None if source is None else getattr(source, name)
