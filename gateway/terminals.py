"""The terminal: everything that is known of a generation, as streams and results state it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

from gateway import answers
from gateway.call import SpeechCall
from gateway.runtime import Served
from shared import errors
from shared.errors import SpeechError
from shared.governance.artifacts import GOVERNANCE_SCHEMA
from shared.messages import ERROR, LENGTH, READY, STOP, TIMEOUT, Claimed, End, Terminal
from shared.wav import FRAME_BYTES, FRAME_MS, HEADER_BYTES


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
        "text_normalization": call.text_normalization,
        "spoken_text_sha256": call.spoken_text_sha256,
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
    """The keys of ``answers.Terminal``, in the contract's order, each null where it isn't known.

    ``facts`` are ``lasting_facts``. ``claimed``, ``served`` and ``first_audio_ms`` say what was
    seen of a job whose end, or whose worker's own statement, did not arrive.
    """
    stated = end.terminal if end is not None else None
    frames = stated.generated_frame_count if stated is not None else chunk_count
    known = {
        **_fields(served),
        **_fields(claimed),
        "first_audio_latency_ms": first_audio_ms,
        **_fields(stated),
        **_fields(end),
        **facts,
        "generated_frame_count": frames,
        "hit_eos": stated is not None and stated.stop_cause == "eos",
        "output_duration_ms": frames * FRAME_MS,
        "wav_bytes": HEADER_BYTES + frames * FRAME_BYTES if frames else 0,
        "chunk_count": chunk_count,
        "request_id": named.request_id,
        "cancellation_id": named.cancellation_id,
        "finish_reason": _reason(end, failure),
        "failure_code": failure.code if failure else None,
        "replayed": replayed,
        "fallback_recommended": failure is not None and failure.retryable,
    }
    if stated is not None:
        known["runtime_state"] = READY
    return {key: known.get(key) for key in answers.Terminal.model_fields}


def _fields(source: Served | Claimed | End | Terminal | None) -> dict[str, Any]:
    if source is None:
        return {}
    return {field.name: getattr(source, field.name) for field in fields(source)}


def _reason(end: End | None, failure: SpeechError | None) -> str | None:
    if end is not None and (failure is None or end.finish_reason not in (STOP, LENGTH)):
        return end.finish_reason
    if failure is None:
        return None
    return TIMEOUT if failure.type == errors.TIMEOUT else ERROR
