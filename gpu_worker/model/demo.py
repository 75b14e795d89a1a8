"""The demo artifact: CSM's architecture at toy size, on seeded weights. It speaks noise.

Same files, same loader and same code path as CSM-1B, so that the whole system runs on a laptop.
The weights are integers of a hash stream times powers of two: exact in bfloat16, hence the same
bytes, digest and artifact id on every machine. What floats decide (the codes of the voice prompt)
differs between machines and is only recorded in the manifests.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gpu_worker.codec import build_mimi, default_mimi_config, pcm16
from gpu_worker.model.config import CsmConfig, TransformerConfig
from gpu_worker.model.demo_text import TEXT_IDS, TRANSCRIPT, train_tokenizer
from gpu_worker.model.layouts import torchtune_shapes
from gpu_worker.model.weights import write_safetensors
from gpu_worker.prompt import TextTokenizer, context_segment
from gpu_worker.voices import CODES_TENSOR
from shared.digests import file_sha256, prompt_tokens_sha256, sha256_hex, transcript_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact
from shared.governance.manifests import ARTIFACT_SCHEMA, Role, artifact_id_of
from shared.governance.voices import DEFAULT_PROFILE_ID, FRAME_CONTRACT, VOICES_SCHEMA
from shared.wav import FRAME_SAMPLES, SAMPLE_RATE, wav_file

SEED: Final = "psionic csm demo 1"
SPEAKER: Final = 1
SOURCE_PROMPT: Final = "demo_formant_tone"
LOUDNESS: Final = 1 / 128
"""Of the last layer's weights; found by trial to make noise at about a tenth of full scale."""
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


@dataclass(frozen=True, slots=True)
class DemoSize:
    """Dimensions of one demo. ``version`` changes whenever what is built changes."""

    model_id: str
    version: str
    backbone: TransformerConfig
    depth: TransformerConfig
    mimi_filters: int
    mimi_dim: int
    codebook_dim: int
    prompt_frames: int


SIZES: Final = {
    "demo": DemoSize(
        model_id="psionic-demo/csm-tiny",
        version="csm_tiny_demo_v1",
        backbone=TransformerConfig(128, 2, 8, 2, 16, 320),
        depth=TransformerConfig(64, 1, 4, 2, 16, 160),
        mimi_filters=8,
        mimi_dim=64,
        codebook_dim=16,
        prompt_frames=30,
    ),
    # For tests that only need every part to be there.
    "tiny": DemoSize(
        model_id="psionic-demo/csm-tiny-test",
        version="csm_tiny_test_v1",
        backbone=TransformerConfig(32, 2, 4, 2, 8, 48),
        depth=TransformerConfig(16, 1, 2, 1, 8, 32),
        mimi_filters=4,
        mimi_dim=32,
        codebook_dim=8,
        prompt_frames=4,
    ),
}


def build_demo(directory: Path, size: str = "demo") -> Artifact:
    """The demo artifact in ``directory``, built if it is not there whole.

    ``size`` is ``demo`` or ``tiny``. The directory appears at once and complete; processes that
    build the same one at a time wait for each other. Raises FileExistsError when something is
    there that is no demo artifact, OSError when it can't be written.
    """
    recipe = SIZES[size]
    directory = directory.absolute()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _lock(directory.parent / f".{directory.name}.lock"):
        if built := _whole(directory, recipe):
            return built
        _check_replaceable(directory)
        work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _build(work, recipe)
            if directory.exists():
                shutil.rmtree(directory)
            work.rename(directory)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return load_artifact(directory)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system releases it if that process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _whole(directory: Path, recipe: DemoSize) -> Artifact | None:
    """The artifact if this recipe built it and every file still has its digest."""
    try:
        artifact = load_artifact(directory)
        if artifact.manifest.model_version != recipe.version:
            return None
        for name, entry in artifact.manifest.files.items():
            if file_sha256(directory / name) != entry.sha256:
                return None
    except (SpeechError, OSError):
        return None
    return artifact


def _check_replaceable(directory: Path) -> None:
    """Raises FileExistsError unless there is nothing, or a demo that went bad or out of date."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    try:
        model_id = json.loads((directory / MANIFEST_NAME).read_bytes())["model_id"]
    except (OSError, ValueError, KeyError, TypeError):
        model_id = None
    if model_id not in {recipe.model_id for recipe in SIZES.values()}:
        raise FileExistsError(f"{directory} holds something else than a demo artifact")


def _build(directory: Path, recipe: DemoSize) -> None:
    config = CsmConfig(
        backbone=recipe.backbone,
        depth=recipe.depth,
        text_vocab_size=TEXT_IDS + 24,
        bos_id=TEXT_IDS,
        eos_id=TEXT_IDS + 1,
    )
    (directory / "config.json").write_text(config.to_json())
    write_safetensors(directory / "model.safetensors", csm_weights(config))
    tokenizer_json = train_tokenizer()
    (directory / "tokenizer.json").write_text(tokenizer_json)
    tokenizer = TextTokenizer.from_bytes(tokenizer_json.encode(), config)

    mimi_config = reduced_mimi_config(recipe)
    (directory / "mimi.json").write_text(json.dumps(mimi_config, indent=2, sort_keys=True) + "\n")
    weights = mimi_weights(mimi_config)
    write_safetensors(directory / "mimi.safetensors", weights)

    clip = synthetic_clip(recipe.prompt_frames)
    mimi = build_mimi(mimi_config, weights, decode_only=False)
    with torch.no_grad():
        codes = mimi.encode(clip[None, None])[0].to(torch.int16).contiguous()
    (directory / PROMPT_FILE).parent.mkdir()
    write_safetensors(directory / PROMPT_FILE, {CODES_TENSOR: codes})

    digests = {
        "csm_config_digest": file_sha256(directory / "config.json"),
        "csm_model_digest": file_sha256(directory / "model.safetensors"),
        "llama_tokenizer_digest": file_sha256(directory / "tokenizer.json"),
        "mimi_weight_digest": file_sha256(directory / "mimi.safetensors"),
    }
    segment = context_segment(tokenizer.encode(SPEAKER, TRANSCRIPT), codes.to(torch.int64))
    voices = _voices(recipe, digests, clip, codes, len(segment))
    (directory / VOICES_FILE).write_text(json.dumps(voices, indent=2) + "\n")
    manifest = _manifest(recipe, directory, digests["csm_model_digest"])
    (directory / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n")


def seeded(name: str, shape: tuple[int, ...], std: float) -> Tensor:
    """A bfloat16 tensor of odd integers in -255..255 times a power of two, near ``std``.

    Each is a function of SEED and ``name`` alone, through SHAKE-256.
    """
    stream = hashlib.shake_256(f"{SEED}/{name}".encode()).digest(math.prod(shape))
    odd = 2 * np.frombuffer(stream, dtype=np.uint8).astype(np.int16) - 255
    # The standard deviation of the odd integers is 256 / sqrt(3).
    exponent = round(math.log2(std * math.sqrt(3) / 256))
    scaled = torch.from_numpy(odd).to(torch.float32) * 2.0**exponent
    return scaled.to(torch.bfloat16).view(shape)


def csm_weights(config: CsmConfig) -> dict[str, Tensor]:
    """Seeded weights in torchtune's layout."""
    return {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith(".scale")
        else seeded(name, shape, _csm_std(name, shape))
        for name, shape in torchtune_shapes(config).items()
    }


def _csm_std(name: str, shape: tuple[int, ...]) -> float:
    if name == "text_embeddings.weight":
        return 1.0
    if name == "audio_embeddings.weight":
        return 1.0 / math.sqrt(32)  # 32 of them are summed in one frame
    if name == "audio_head":
        return 2.0 / math.sqrt(shape[1])
    if name == "codebook0_head.weight":
        return 2.0 / math.sqrt(shape[1])  # logits near 2: neither flat nor decided
    return 1.0 / math.sqrt(shape[1])


def reduced_mimi_config(recipe: DemoSize) -> dict[str, Any]:
    """moshi's configuration of Mimi with smaller widths; rates and codebooks as published."""
    published, dim = default_mimi_config(), recipe.mimi_dim
    sizes: dict[str, dict[str, Any]] = {
        "seanet": {"n_filters": recipe.mimi_filters, "dimension": dim},
        "quantizer": {
            "dimension": recipe.codebook_dim,
            "input_dimension": dim,
            "output_dimension": dim,
        },
        "transformer": {
            "d_model": dim,
            "num_heads": 4,
            "num_layers": 2,
            "dim_feedforward": 2 * dim,
            "input_dimension": dim,
            "output_dimensions": [dim],
        },
    }
    return published | {part: published[part] | sizes[part] for part in sizes}


def mimi_weights(config: dict[str, Any]) -> dict[str, Tensor]:
    """Seeded weights for a Mimi of that configuration, by moshi's names."""
    shapes = {name: tuple(each.shape) for name, each in _empty_mimi(config).items()}
    return {name: _mimi_weight(name, shape) for name, shape in shapes.items()}


def _empty_mimi(config: dict[str, Any]) -> dict[str, Tensor]:
    from moshi.models import loaders

    state: dict[str, Tensor] = loaders.get_mimi(None, config, "meta", 32).state_dict()
    return state


def _mimi_weight(name: str, shape: tuple[int, ...]) -> Tensor:
    if name.endswith((".bias", "._initialized")):
        return torch.full(shape, float(name.endswith("_initialized")), dtype=torch.bfloat16)
    if name.endswith(".scale"):
        return torch.full(shape, 0.125, dtype=torch.bfloat16)
    if len(shape) == 1:  # norms and cluster usage
        return torch.ones(shape, dtype=torch.bfloat16)
    if name.startswith("decoder.model.") and shape[0] == 1:
        return _output_kernel(seeded(name, shape, LOUDNESS))
    return seeded(name, shape, _mimi_std(name, shape))


def _output_kernel(weight: Tensor) -> Tensor:
    """Taps (a, -a, 0) per channel: no constant offset reaches the speaker."""
    return torch.stack([weight[..., 0], -weight[..., 0], torch.zeros_like(weight[..., 0])], dim=-1)


def _mimi_std(name: str, shape: tuple[int, ...]) -> float:
    if "embedding_sum" in name:
        return 0.125
    if "upsample" in name or ".convtr." in name:
        fan_in = (1 if "upsample" in name else shape[0]) * 2  # kernels are two strides long
    else:
        fan_in = math.prod(shape[1:])
    return 1.4 / math.sqrt(fan_in)  # about keeps the level through an ELU


def synthetic_clip(frames: int) -> Tensor:
    """[frames * 1920] float32: a 120 Hz buzz under three formants that glide."""
    time = torch.arange(frames * FRAME_SAMPLES, dtype=torch.float64) / SAMPLE_RATE
    glide = 0.5 + 0.5 * torch.sin(2 * math.pi * 1.5 * time)
    wave = torch.zeros_like(time)
    for harmonic in range(1, 30):
        frequency = 120.0 * harmonic
        gain = sum(
            torch.exp(-(((frequency - low - (high - low) * glide) / width) ** 2))
            for low, high, width in ((300, 750, 120), (900, 1900, 180), (2400, 2800, 250))
        )
        wave += gain * torch.sin(2 * math.pi * frequency * time)
    return (0.5 * wave / wave.abs().max()).to(torch.float32)


def _voices(
    recipe: DemoSize, digests: dict[str, str], clip: Tensor, codes: Tensor, segment: int
) -> dict[str, Any]:
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
        **digests,
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
            "segment_frame_count": segment,
        },
    }
    return {
        "schema_version": VOICES_SCHEMA,
        "generated_at": "built_on_this_machine",
        "model_id": recipe.model_id,
        "watermark_policy": watermark,
        "profiles": [profile],
    }


def _manifest(recipe: DemoSize, directory: Path, weights_digest: str) -> dict[str, Any]:
    gate = "blocked_without_artifact_license_voice_profile_watermark_and_runtime_image_governance"
    return {
        "schema_version": ARTIFACT_SCHEMA,
        "artifact_id": artifact_id_of(recipe.model_id, weights_digest),
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
