"""The artifact's two manifests: what it is, whose voice, and what it may be used for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from demo_voice.profiles import Profile, Style
from demo_voice.tokens import SPEAKER
from demo_voice.words import VOCABULARY
from gpu_worker.model import built_manifests
from gpu_worker.model.built_manifests import (
    VOICES_FILE,
    BuiltArtifact,
    BuiltVoice,
    artifact_manifest,
    voices_manifest,
)
from shared.governance.voices import DEFAULT_PROFILE_ID

TEMPERATURE: Final = 0.3
TOP_K: Final = 50
ROLES: Final[dict[str, str]] = {**built_manifests.ROLES, VOICES_FILE: "voices"}


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
    voices = [_voice(index, each, profile) for index, each in enumerate(prompts)]
    return voices_manifest(profile.model_id, "exported_with_the_weights", directory, voices)


def manifest_of(profile: Profile, directory: Path, prompts: list[Prompt]) -> dict[str, Any]:
    """``manifest.json`` of the files in ``directory``."""
    spoken = BuiltArtifact(
        model_id=profile.model_id,
        version=profile.model_version,
        description=(
            "CSM's architecture at toy size, trained on synthetic speech of one voice over a closed"
            " vocabulary. Words outside it come out wrong."
        ),
        tokenizer_repo="psionic-demo/tokenizer-words",
        mimi_repo="psionic-demo/mimi-spoken",
        roles=ROLES | {each.file: "voice_prompt" for each in prompts},
        quantization="none_float16_safetensors",
        license_posture="own_weights_trained_on_flite_output_no_upstream_model",
        temperature=TEMPERATURE,
        top_k=TOP_K,
        note=(
            f"A small demo that knows {len(VOCABULARY)} English words; others come out wrong."
            " Write numbers as words."
        ),
        vocabulary=VOCABULARY,
    )
    return artifact_manifest(spoken, directory)


def _voice(index: int, prompt: Prompt, profile: Profile) -> BuiltVoice:
    return BuiltVoice(
        profile_id=profile_id(index, prompt.style),
        display_name=f"Demo voice, {prompt.style.name} (synthetic, monotone)",
        prompt_id=f"demo_{prompt.style.name}",
        speaker=SPEAKER,
        mimi="small_mimi_trained_on_one_synthetic_voice",
        provenance=f"flite_voice_{prompt.style.flite_voice}_resynthesised_monotone",
        consent="published_research_voice_of_a_synthesiser_made_monotone",
        file=prompt.file,
        source="flite_speech_encoded_by_the_demo_mimi",
        transcript=profile.prompt,
        clip=prompt.clip,
        codes=prompt.codes,
        segment_frames=prompt.segment_frames,
    )
