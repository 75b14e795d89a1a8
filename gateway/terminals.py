"""The terminal: everything that is known of a generation, as streams and results state it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.runtime import UNSERVED, Served
from gateway.validation import SpeechCall
from shared.errors import SpeechError
from shared.messages import LENGTH, READY, STOP, TIMEOUT, End, Terminal
from shared.wav import FRAME_BYTES, FRAME_MS, HEADER_BYTES


def terminal_keys(
    call: SpeechCall | None,
    end: End | None,
    *,
    served: Served = UNSERVED,
    chunk_count: int = 0,
    failure: SpeechError | None = None,
    replayed: bool = False,
) -> dict[str, Any]:
    """The keys of a terminal event, in the contract's order, each null where it isn't known."""
    terminal = end.terminal if end is not None else None
    frames = terminal.generated_frame_count if terminal is not None else chunk_count
    return {
        **_governed(call),
        **_execution(terminal, served),
        "generated_frame_count": frames,
        "prompt_frame_count": _of(terminal, "prompt_frame_count"),
        "hit_eos": _of(terminal, "stop_cause") == "eos",
        "first_audio_latency_ms": _of(end, "first_audio_latency_ms"),
        "full_generation_latency_ms": _of(end, "full_generation_latency_ms"),
        "output_duration_ms": frames * FRAME_MS,
        "wav_bytes": HEADER_BYTES + frames * FRAME_BYTES if frames else 0,
        "chunk_count": chunk_count,
        "codebook_frames_sha256": _of(terminal, "codebook_frames_sha256"),
        "wav_pcm16_digest": _of(terminal, "wav_pcm16_digest"),
        "pcm16_sha256": _of(terminal, "pcm16_sha256"),
        "request_id": call.job.request_id if call else None,
        "cancellation_id": call.job.cancellation_id if call else None,
        "finish_reason": _reason(end, failure),
        "stop_cause": _of(terminal, "stop_cause"),
        "failure_code": failure.code if failure else None,
        "runtime_state": READY if terminal is not None else served.runtime_state,
        "queue_wait_ms": _of(end, "queue_wait_ms"),
        "seed": call.job.seed if call else None,
        "attempt": _of(end, "attempt"),
        "worker_id": _of(terminal, "worker_id"),
        "source_prompt_profile_id": call.profile.source_prompt_profile_id if call else None,
        "runtime_image_ref": _of(terminal, "runtime_image_ref"),
        "determinism_class": _of(terminal, "determinism_class"),
        "replayed": replayed,
        "fallback_recommended": failure is not None and failure.retryable,
        "rollback_target": call.artifact.manifest.rollback_target if call else None,
    }


GOVERNED_KEYS: Sequence[str] = (
    "artifact_id",
    "governance_schema",
    "license_posture",
    "voice_profile_id",
    "runtime_admission",
    "watermarking",
    "watermarking_refusal_code",
)


def lasting_facts(call: SpeechCall) -> dict[str, Any]:
    """The terminal's keys that the request alone decides, for whoever reads its result later."""
    return {
        **_governed(call),
        "seed": call.job.seed,
        "source_prompt_profile_id": call.profile.source_prompt_profile_id,
        "rollback_target": call.artifact.manifest.rollback_target,
    }


def _governed(call: SpeechCall | None) -> dict[str, Any]:
    if call is None:
        return {"model": None, **dict.fromkeys(GOVERNED_KEYS)}
    facts = call.artifact.terminal_facts(call.profile)
    return {"model": call.model, **{key: facts[key] for key in GOVERNED_KEYS}}


def _execution(terminal: Terminal | None, served: Served) -> dict[str, Any]:
    if terminal is None:
        return {
            "backend": served.backend,
            "execution_engine": served.execution_engine,
            "residency": None,
            "accelerated_backend": None,
            "gpu_model": None,
            "cpu_fallback_reason": None,
        }
    return {
        "backend": terminal.backend,
        "execution_engine": terminal.execution_engine,
        "residency": terminal.residency,
        "accelerated_backend": terminal.accelerated_backend,
        "gpu_model": terminal.gpu_model,
        "cpu_fallback_reason": terminal.cpu_fallback_reason,
    }


def _reason(end: End | None, failure: SpeechError | None) -> str | None:
    if end is not None and (failure is None or end.finish_reason not in (STOP, LENGTH)):
        return end.finish_reason
    if failure is None:
        return None
    return TIMEOUT if failure.status == 504 else "error"


def _of(source: End | Terminal | None, name: str) -> Any:
    return getattr(source, name) if source is not None else None
