"""The artifact's two manifests: what it is, whose voice, and what it may be used for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from demo_voice.profiles import Profile, Style
from demo_voice.tokens import SPEAKER
from gpu_worker.codec import pcm16
from gpu_worker.model.demo_manifests import digests_of
from shared.digests import file_sha256, prompt_tokens_sha256, sha256_hex, transcript_sha256
from shared.governance.manifests import ARTIFACT_SCHEMA, artifact_id_of
from shared.governance.voices import DEFAULT_PROFILE_ID, FRAME_CONTRACT, VOICES_SCHEMA
from shared.wav import SAMPLE_RATE, wav_file

VOICES_FILE: Final = "voices.json"
TEMPERATURE: Final = 0.3
TOP_K: Final = 50
ROLES: Final = {
    "config.json": "csm_config",
    "model.safetensors": "csm_model",
    "tokenizer.json": "llama_tokenizer",
    "mimi.safetensors": "mimi_weight",
    "mimi.json": "mimi_config",
    VOICES_FILE: "voices",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A profile's own: codes [32, frames] int16, the sound they were made of, its place."""

    style: Style
    file: str
    codes: Tensor
    clip: Tensor
    segment_frames: int


def profile_id(index: int, style: Style) -> str:
    """The first style is the default voice; the others are named by how they speak."""
    return DEFAULT_PROFILE_ID if index == 0 else f"openagents/demo_{style.name}_v1"


def voices_of(profile: Profile, directory: Path, prompts: list[Prompt]) -> dict[str, Any]:
    """``voices.json``: one voice profile for each prompt, bound to the files in ``directory``."""
    entries = [
        _voice(index, each, profile, digests_of(directory)) for index, each in enumerate(prompts)
    ]
    return {
        "schema_version": VOICES_SCHEMA,
        "generated_at": "exported_with_the_weights",
        "model_id": profile.model_id,
        "watermark_policy": _watermark(),
        "profiles": entries,
    }


def manifest_of(profile: Profile, directory: Path, prompts: list[Prompt]) -> dict[str, Any]:
    """``manifest.json`` of the files in ``directory``."""
    roles = ROLES | {each.file: "voice_prompt" for each in prompts}
    gate = "blocked_without_artifact_license_voice_profile_watermark_and_runtime_image_governance"
    weights = file_sha256(directory / "model.safetensors")
    return {
        "schema_version": ARTIFACT_SCHEMA,
        "artifact_id": artifact_id_of(profile.model_id, weights),
        "model_id": profile.model_id,
        "model_version": profile.model_version,
        "description": (
            "CSM's architecture at toy size, trained on synthetic speech of one voice over a closed"
            " vocabulary. Words outside it come out wrong."
        ),
        "csm_repo": profile.model_id,
        "llama_tokenizer_repo": "psionic-demo/tokenizer-words",
        "mimi_repo": "psionic-demo/mimi-spoken",
        "files": {
            name: {
                "role": role,
                "sha256": file_sha256(directory / name),
                "bytes": os.path.getsize(directory / name),
            }
            for name, role in roles.items()
        },
        "quantization": "none_float16_safetensors",
        "license_posture": "own_weights_trained_on_flite_output_no_upstream_model",
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
        "sampling_defaults": {"temperature": TEMPERATURE, "top_k": TOP_K},
        "rollback_target": "fallback_to_current_autopilot_tts_provider",
        "promotion": {"canary": gate, "primary": gate},
        "evidence": {
            "license_review": None,
            "voice_safety_control": None,
            "autopilot_shadow_business_outcome": None,
        },
    }


def _voice(index: int, prompt: Prompt, profile: Profile, digests: dict[str, str]) -> dict[str, Any]:
    wave = wav_file(pcm16(prompt.clip).numpy().tobytes())
    return {
        "profile_id": profile_id(index, prompt.style),
        "display_name": f"Demo voice, {prompt.style.name} (synthetic, monotone)",
        "approval_status": "approved_internal_placeholder",
        "runtime_admission": "admitted_internal_development",
        "source_prompt_profile_id": f"demo_{prompt.style.name}",
        "speaker": SPEAKER,
        "prompt_transcript_sha256": transcript_sha256(profile.prompt),
        "prompt_audio_sha256": sha256_hex(wave),
        "prompt_codebook_tokens_sha256": prompt_tokens_sha256(prompt.codes.tolist()),
        **digests,
        "compatibility": {
            "csm_model_id": profile.model_id,
            "frame_contract": FRAME_CONTRACT,
            "mimi": "small_mimi_trained_on_one_synthetic_voice",
            "prompt_codebooks": "full_codebooks_beside_the_manifest",
        },
        "source_provenance": f"flite_voice_{prompt.style.flite_voice}_resynthesised_monotone",
        "consent_posture": "published_research_voice_of_a_synthesiser_made_monotone",
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
        "watermark_policy": _watermark(),
        "prompt": {
            "file": prompt.file,
            "source": "flite_speech_encoded_by_the_demo_mimi",
            "transcript": profile.prompt,
            "sample_rate_hz": SAMPLE_RATE,
            "codebook_count": prompt.codes.shape[0],
            "audio_frame_count": prompt.codes.shape[1],
            "segment_frame_count": prompt.segment_frames,
        },
    }


def _watermark() -> dict[str, Any]:
    return {
        "status": "unsupported_fail_closed",
        "refusal_code": "csm_watermarking_unavailable",
        "required_phase": (
            "private_watermark_or_equivalent_voice_safety_control_before_public_voice_clone"
        ),
        "public_demo_key_status": "not_a_production_safety_control",
        "production_cutover": "blocked_until_private_watermark_or_equivalent_control",
    }
