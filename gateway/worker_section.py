"""What the documents say of a worker as Autopilot knows one: its protocol, its load, its codec.

It is not one of the live workers, but what all that serve the default artifact are to a client.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.lengths import MIN_DEFAULT_TIMEOUT_MS
from scheduler.load import QueueLoad
from shared.messages import NOTHING
from shared.tiers import Tier

BUSINESS_AUTHORITY: Final = "none_provider_output_is_evidence_not_instruction"
RPC_FACTS: Final[dict[str, Any]] = {
    "worker_id": "psionic.csm_speech.worker.v1",
    "rpc_schema": "psionic.csm.speech.worker.v1",
    "request_fields": [
        "request_id",
        "input",
        "voice_profile_id",
        "artifact_id",
        "max_audio_length_ms",
        "timeout_ms",
        "cancellation_id",
        "stream",
        "context_policy",
        "seed",
        "priority",
        "voice_turn_budget_ms",
        "text_normalization",
    ],
    "response_metadata_fields": [
        "request_id",
        "cancellation_id",
        "artifact_id",
        "voice_profile_id",
        "generated_frame_count",
        "first_audio_latency_ms",
        "full_generation_latency_ms",
        "output_duration_ms",
        "wav_pcm16_digest",
        "codebook_frames_sha256",
        "chunk_count",
        "spoken_text_sha256",
    ],
    "idempotency_key": "request_id",
    "cancellation": "preemptive_between_frames",
}

RPC_LISTS: Final[dict[str, Any]] = {
    "metrics": [
        "queue_depth",
        "in_flight_requests",
        "first_audio_latency_ms",
        "full_generation_latency_ms",
        "output_duration_ms",
        "failure_code",
        "runtime_state",
    ],
    "governance_fields": [
        "artifact_id",
        "artifact_hash",
        "license_posture",
        "runtime_image_ref",
        "voice_profile_id",
        "watermark_status",
        "rollback_target",
    ],
    "business_authority": BUSINESS_AUTHORITY,
}


def worker_section(row: QueueLoad, tier: Tier) -> dict[str, Any]:
    """For the load of the default artifact's queue."""
    return {
        **RPC_FACTS,
        "timeout_ms_default": min(MIN_DEFAULT_TIMEOUT_MS, tier.max_timeout_ms),
        "timeout_ms_max": tier.max_timeout_ms,
        **load_of(row),
        **RPC_LISTS,
    }


def load_of(row: QueueLoad) -> dict[str, int]:
    """How loaded one queue is, as every document says it."""
    return {
        "queue_depth": row.depth,
        "in_flight_requests": row.in_flight,
        "capacity_lanes": row.lanes,
        "estimated_wait_ms": row.estimated_wait_ms,
        "oldest_wait_ms": row.oldest_wait_ms,
    }


def codec_capabilities(backend: str) -> dict[str, Any]:
    """What Mimi does here, on the backend that is served."""
    return {
        "mimi_decode": "implemented",
        "mimi_decode_engine": NOTHING if backend == NOTHING else f"torch_moshi_mimi_{backend}",
        "reference_audio_encode": "refused",
        "reference_audio_encode_refusal": {
            "code": "mimi_encode_not_served",
            "reason": "voices are governed profiles with committed prompt codebooks, never uploads",
            "required_phase": "mimi_encode_or_prompt_codebook_refresh",
        },
    }
