"""Two small artifacts: manifests alone, since a gateway reads nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.digests import sha256_hex, transcript_sha256
from shared.governance.artifacts import Artifact, load_artifact

MODEL_ID = "psionic-test/csm-tiny"
VOICE = "openagents/default_female_v1"
PLAIN_VOICE = "openagents/plain_v1"
PROMPT_FRAMES = 120
MAX_SEQ_LEN = 1024

WATERMARK = {
    "status": "unsupported_operator_accepted_limited_dogfood",
    "refusal_code": "csm_watermarking_unavailable",
    "required_phase": "private_watermark",
    "public_demo_key_status": "not_a_production_safety_control",
    "production_cutover": "admitted_for_openagents_operated_autopilot_dogfood_only",
}


def _digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def _profile(profile_id: str, digests: dict[str, str], prompt: dict[str, Any] | None) -> Any:
    return {
        "profile_id": profile_id,
        "display_name": "A voice",
        "approval_status": "approved_openagents_operated_dogfood",
        "runtime_admission": "admitted_openagents_operated_autopilot_production_dogfood",
        "source_prompt_profile_id": "conversational_b",
        "speaker": 1,
        "prompt_transcript_sha256": transcript_sha256("a transcript"),
        "prompt_audio_sha256": _digest("1"),
        "prompt_codebook_tokens_sha256": _digest("2") if prompt else None,
        **digests,
        "compatibility": {
            "csm_model_id": MODEL_ID,
            "frame_contract": "33_lanes_text_lane_32_audio_lanes_0_31_generation_frame_80ms",
            "mimi": "test",
            "prompt_codebooks": "test",
        },
        "source_provenance": "fixture",
        "consent_posture": "placeholder",
        "allowed_product_surfaces": ["psionic_local_development"],
        "disallowed_product_surfaces": ["public_user_voice_clone"],
        "retention_policy": "codebooks_only",
        "redaction_policy": "no_secrets",
        "watermark_policy": WATERMARK,
        "prompt": prompt,
    }


def write_artifact(directory: Path, weights: str = "a") -> Artifact:
    """An artifact whose weights' digest is made of one hex letter."""
    digests = {
        "csm_config_digest": _digest("c"),
        "csm_model_digest": _digest(weights),
        "llama_tokenizer_digest": _digest("d"),
        "mimi_weight_digest": _digest("e"),
    }
    prompt = {
        "file": "prompts/b.safetensors",
        "source": "fixture",
        "transcript": "a transcript",
        "sample_rate_hz": 24_000,
        "codebook_count": 32,
        "audio_frame_count": 100,
        "segment_frame_count": PROMPT_FRAMES,
    }
    voices = {
        "schema_version": "psionic.csm.voice_profiles.v1",
        "generated_at": "2026-05-06T00:00:00Z",
        "model_id": MODEL_ID,
        "watermark_policy": WATERMARK,
        "profiles": [_profile(VOICE, digests, prompt), _profile(PLAIN_VOICE, digests, None)],
    }
    data = json.dumps(voices).encode()
    files = {
        "config.json": ("csm_config", digests["csm_config_digest"]),
        "model.safetensors": ("csm_model", digests["csm_model_digest"]),
        "tokenizer.json": ("llama_tokenizer", digests["llama_tokenizer_digest"]),
        "mimi.safetensors": ("mimi_weight", digests["mimi_weight_digest"]),
        "prompts/b.safetensors": ("voice_prompt", _digest("3")),
        "voices.json": ("voices", sha256_hex(data)),
    }
    manifest = {
        "schema_version": "psionic.csm.artifact.v1",
        "artifact_id": f"{MODEL_ID}@{digests['csm_model_digest']}",
        "model_id": MODEL_ID,
        "model_version": "v1",
        "description": "for tests",
        "csm_repo": MODEL_ID,
        "llama_tokenizer_repo": "test/llama",
        "mimi_repo": "test/mimi",
        "files": {
            name: {"role": role, "sha256": digest, "bytes": None}
            for name, (role, digest) in files.items()
        },
        "quantization": "none",
        "license_posture": "license_review_required",
        "disallowed_voice_use_cases": ["public_user_voice_clone"],
        "frame_contract": {
            "frame_lanes": 33,
            "audio_codebook_lanes": 32,
            "text_lane_index": 32,
            "max_seq_len": MAX_SEQ_LEN,
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
    directory.mkdir(parents=True, exist_ok=True)
    directory.joinpath("voices.json").write_bytes(data)
    directory.joinpath("manifest.json").write_text(json.dumps(manifest))
    return load_artifact(directory)
