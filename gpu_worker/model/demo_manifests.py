"""The demo's two manifests, which say plainly what it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from gpu_worker.codec import pcm16
from gpu_worker.model.demo_text import TRANSCRIPT
from gpu_worker.model.demo_weights import DemoSize
from shared.digests import file_sha256, prompt_tokens_sha256, sha256_hex, transcript_sha256
from shared.governance.manifests import ARTIFACT_SCHEMA, Role, artifact_id_of
from shared.governance.voices import DEFAULT_PROFILE_ID, FRAME_CONTRACT, VOICES_SCHEMA
from shared.wav import SAMPLE_RATE, wav_file

SPEAKER: Final = 1
SOURCE_PROMPT: Final = "demo_formant_tone"
PROMPT_FILE: Final = "prompts/demo_formant_tone.safetensors"
VOICES_FILE: Final = "voices.json"
ROLES: Final[dict[str, Role]] = {
    "config.json": "csm_config",
    "model.safetensors": "csm_model",
    "tokenizer.json": "llama_tokenizer",
    "mimi.safetensors": "mimi_weight",
    "mimi.json": "mimi_config",
    PROMPT_FILE: "voice_prompt",
    VOICES_FILE: "voices",
}


def digests_of(directory: Path) -> dict[str, str]:
    """The four published digests, of the files in ``directory``."""
    return {
        "csm_config_digest": file_sha256(directory / "config.json"),
        "csm_model_digest": file_sha256(directory / "model.safetensors"),
        "llama_tokenizer_digest": file_sha256(directory / "tokenizer.json"),
        "mimi_weight_digest": file_sha256(directory / "mimi.safetensors"),
    }


def demo_voices(
    recipe: DemoSize, directory: Path, clip: Tensor, codes: Tensor, segment_frames: int
) -> dict[str, Any]:
    """``voices.json``: one profile, a tone, bound to the files in ``directory``.

    clip: [samples] float32; codes: [32, T], what the demo's Mimi makes of it.
    """
    watermark = {
        "status": "unsupported_fail_closed",
        "refusal_code": "csm_watermarking_unavailable",
        "required_phase": (
            "private_watermark_or_equivalent_voice_safety_control_before_public_voice_clone"
        ),
        "public_demo_key_status": "not_a_production_safety_control",
        "production_cutover": "blocked_until_private_watermark_or_equivalent_control",
    }
    profile = {
        "profile_id": DEFAULT_PROFILE_ID,
        "display_name": "OpenAgents default female v1 (demo: synthetic tone)",
        "approval_status": "approved_internal_placeholder",
        "runtime_admission": "admitted_internal_development",
        "source_prompt_profile_id": SOURCE_PROMPT,
        "speaker": SPEAKER,
        "prompt_transcript_sha256": transcript_sha256(TRANSCRIPT),
        "prompt_audio_sha256": sha256_hex(wav_file(pcm16(clip).numpy().tobytes())),
        "prompt_codebook_tokens_sha256": prompt_tokens_sha256(codes.tolist()),
        **digests_of(directory),
        "compatibility": {
            "csm_model_id": recipe.model_id,
            "frame_contract": FRAME_CONTRACT,
            "mimi": "reduced_mimi_on_seeded_weights",
            "prompt_codebooks": "full_codebooks_beside_the_manifest",
        },
        "source_provenance": "synthetic_tone_made_by_the_demo_builder",
        "consent_posture": "synthetic_tone_no_person",
        "allowed_product_surfaces": [
            "psionic_local_development",
            "autopilot_internal_development",
        ],
        "disallowed_product_surfaces": [
            "public_user_voice_clone",
            "arbitrary_reference_audio_upload",
        ],
        "retention_policy": "synthetic_prompt_rebuilt_at_any_time",
        "redaction_policy": "no_huggingface_token_no_provider_key_no_raw_user_voice_upload",
        "watermark_policy": watermark,
        "prompt": {
            "file": PROMPT_FILE,
            "source": "synthetic_tone_encoded_by_the_demo_mimi",
            "transcript": TRANSCRIPT,
            "sample_rate_hz": SAMPLE_RATE,
            "codebook_count": codes.shape[0],
            "audio_frame_count": codes.shape[1],
            "segment_frame_count": segment_frames,
        },
    }
    return {
        "schema_version": VOICES_SCHEMA,
        "generated_at": "built_on_this_machine",
        "model_id": recipe.model_id,
        "watermark_policy": watermark,
        "profiles": [profile],
    }


def demo_manifest(recipe: DemoSize, directory: Path) -> dict[str, Any]:
    """``manifest.json`` of the files in ``directory``."""
    gate = "blocked_without_artifact_license_voice_profile_watermark_and_runtime_image_governance"
    return {
        "schema_version": ARTIFACT_SCHEMA,
        "artifact_id": artifact_id_of(
            recipe.model_id, file_sha256(directory / "model.safetensors")
        ),
        "model_id": recipe.model_id,
        "model_version": recipe.version,
        "description": "CSM's architecture at toy size on seeded weights. Its speech is noise.",
        "csm_repo": recipe.model_id,
        "llama_tokenizer_repo": "psionic-demo/tokenizer-tiny",
        "mimi_repo": "psionic-demo/mimi-tiny",
        "files": {
            name: {
                "role": role,
                "sha256": file_sha256(directory / name),
                "bytes": os.path.getsize(directory / name),
            }
            for name, role in ROLES.items()
        },
        "quantization": "none_bfloat16_safetensors",
        "license_posture": "demo_weights_made_here_no_upstream_license_not_for_customers",
        "disallowed_voice_use_cases": [
            "public_user_voice_clone",
            "customer_voice_clone",
            "contact_voice_clone",
            "arbitrary_reference_audio_upload",
        ],
        "frame_contract": {
            "frame_lanes": 33,
            "audio_codebook_lanes": 32,
            "text_lane_index": 32,
            "max_seq_len": 2048,
            "generation_frame_ms": 80,
            "sample_rate_hz": SAMPLE_RATE,
        },
        "sampling_defaults": {"temperature": 0.9, "top_k": 50},
        "rollback_target": "fallback_to_current_autopilot_tts_provider",
        "promotion": {"canary": gate, "primary": gate},
        "evidence": {
            "license_review": None,
            "voice_safety_control": None,
            "autopilot_shadow_business_outcome": None,
        },
    }
