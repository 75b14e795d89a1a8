"""A pair of manifests as small as they can be, to be bent by the tests, and how to write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.digests import sha256_hex, transcript_sha256

MODEL_ID = "sesame/csm-1b"
DIGESTS = {
    "csm_config_digest": "sha256:b203c014cb5a2f7b4f98d2e945f091182aceb17fa530ce968e8c3437e01a9b70",
    "csm_model_digest": "sha256:2e7721144afe38b906d4f1048671da639fe142423f4a26283606ecebe894f4bf",
    "llama_tokenizer_digest": (
        "sha256:79e3e522635f3171300913bb421464a87de6222182a0570b9b2ccba2a964b2b4"
    ),
    "mimi_weight_digest": "sha256:09b782f0629851a271227fb9d36db65c041790365f11bbe5d3d59369cf863f50",
}
WATERMARK = {
    "status": "unsupported_operator_accepted_limited_dogfood",
    "refusal_code": "csm_watermarking_unavailable",
    "required_phase": (
        "private_watermark_or_equivalent_voice_safety_control_before_public_voice_clone"
    ),
    "public_demo_key_status": "not_a_production_safety_control",
    "production_cutover": "admitted_for_openagents_operated_autopilot_dogfood_only",
}
PROFILE: dict[str, Any] = {
    "profile_id": "openagents/default_female_v1",
    "display_name": "OpenAgents default female v1",
    "approval_status": "approved_openagents_operated_dogfood",
    "runtime_admission": "admitted_openagents_operated_autopilot_production_dogfood",
    "source_prompt_profile_id": "conversational_b",
    "speaker": 1,
    "prompt_transcript_sha256": transcript_sha256("a transcript"),
    "prompt_audio_sha256": f"sha256:{'1' * 64}",
    "prompt_codebook_tokens_sha256": f"sha256:{'2' * 64}",
    **DIGESTS,
    "compatibility": {
        "csm_model_id": MODEL_ID,
        "frame_contract": "33_lanes_text_lane_32_audio_lanes_0_31_generation_frame_80ms",
        "mimi": "kyutai_moshiko_pytorch_bf16_tokenizer_e351c8d8_checkpoint125",
        "prompt_codebooks": "full_precomputed_codebooks_committed_for_prompt_profile_context",
    },
    "source_provenance": "fixture",
    "consent_posture": "placeholder_not_arbitrary_user_upload",
    "allowed_product_surfaces": ["psionic_local_development"],
    "disallowed_product_surfaces": ["public_user_voice_clone"],
    "retention_policy": "codebooks_only",
    "redaction_policy": "no_secrets",
    "watermark_policy": WATERMARK,
    "prompt": {
        "file": "prompts/b.safetensors",
        "source": "committed_parity_fixture_digest_and_prefix",
        "transcript": "a transcript",
        "sample_rate_hz": 24_000,
        "codebook_count": 32,
        "audio_frame_count": 375,
        "segment_frame_count": 389,
    },
}
VOICES: dict[str, Any] = {
    "schema_version": "psionic.csm.voice_profiles.v1",
    "generated_at": "2026-05-06T00:00:00Z",
    "model_id": MODEL_ID,
    "watermark_policy": WATERMARK,
    "profiles": [PROFILE],
}
MANIFEST: dict[str, Any] = {
    "schema_version": "psionic.csm.artifact.v1",
    "artifact_id": f"{MODEL_ID}@{DIGESTS['csm_model_digest']}",
    "model_id": MODEL_ID,
    "model_version": "csm_1b_v1",
    "description": "for tests",
    "csm_repo": MODEL_ID,
    "llama_tokenizer_repo": "meta-llama/Llama-3.2-1B",
    "mimi_repo": "kyutai/moshiko-pytorch-bf16",
    "files": {
        "config.json": {
            "role": "csm_config",
            "sha256": DIGESTS["csm_config_digest"],
            "bytes": None,
        },
        "model.safetensors": {
            "role": "csm_model",
            "sha256": DIGESTS["csm_model_digest"],
            "bytes": None,
        },
        "tokenizer.json": {
            "role": "llama_tokenizer",
            "sha256": DIGESTS["llama_tokenizer_digest"],
            "bytes": None,
        },
        "tokenizer-e351c8d8-checkpoint125.safetensors": {
            "role": "mimi_weight",
            "sha256": DIGESTS["mimi_weight_digest"],
            "bytes": None,
        },
        "prompts/b.safetensors": {
            "role": "voice_prompt",
            "sha256": f"sha256:{'3' * 64}",
            "bytes": None,
        },
    },
    "quantization": "none_full_precision_safetensors",
    "license_posture": "license_review_required",
    "disallowed_voice_use_cases": ["public_user_voice_clone"],
    "frame_contract": {
        "frame_lanes": 33,
        "audio_codebook_lanes": 32,
        "text_lane_index": 32,
        "max_seq_len": 2048,
        "generation_frame_ms": 80,
        "sample_rate_hz": 24_000,
    },
    "sampling_defaults": {"temperature": 0.9, "top_k": 50},
    "rollback_target": "fallback_to_current_autopilot_tts_provider",
    "promotion": {"canary": "blocked", "primary": "blocked_too"},
    "evidence": {
        "license_review": None,
        "voice_safety_control": None,
        "autopilot_shadow_business_outcome": None,
    },
}


def write_manifests(directory: Path, manifest: dict[str, Any], voices: dict[str, Any]) -> Path:
    """Writes both into a directory, the first naming the second, and returns it."""
    data = json.dumps(voices).encode()
    files = {
        "voices.json": {"role": "voices", "sha256": sha256_hex(data), "bytes": len(data)},
        **manifest.get("files", {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    directory.joinpath("voices.json").write_bytes(data)
    directory.joinpath("manifest.json").write_text(json.dumps({**manifest, "files": files}))
    return directory
