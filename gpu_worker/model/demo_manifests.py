"""The demo's two manifests, which say plainly what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from torch import Tensor

from gpu_worker.model import built_manifests
from gpu_worker.model.built_manifests import (
    VOICES_FILE,
    BuiltArtifact,
    BuiltVoice,
    artifact_manifest,
    voices_manifest,
)
from gpu_worker.model.demo_sizes import DemoSize
from gpu_worker.model.demo_text import TRANSCRIPT
from shared.governance.manifests import Role
from shared.governance.voices import DEFAULT_PROFILE_ID

SPEAKER: Final = 1
SOURCE_PROMPT: Final = "demo_formant_tone"
PROMPT_FILE: Final = "prompts/demo_formant_tone.safetensors"
ROLES: Final[dict[str, Role]] = {
    **built_manifests.ROLES,
    PROMPT_FILE: "voice_prompt",
    VOICES_FILE: "voices",
}


def demo_voices(
    recipe: DemoSize, directory: Path, clip: Tensor, codes: Tensor, segment_frames: int
) -> dict[str, Any]:
    """``voices.json``: one profile, a tone, bound to the files in ``directory``.

    clip: [samples] float32; codes: [32, T], what the demo's Mimi makes of it.
    """
    tone = BuiltVoice(
        profile_id=DEFAULT_PROFILE_ID,
        display_name="OpenAgents default female v1 (demo: synthetic tone)",
        prompt_id=SOURCE_PROMPT,
        speaker=SPEAKER,
        mimi="reduced_mimi_on_seeded_weights",
        provenance="synthetic_tone_made_by_the_demo_builder",
        consent="synthetic_tone_no_person",
        file=PROMPT_FILE,
        source="synthetic_tone_encoded_by_the_demo_mimi",
        transcript=TRANSCRIPT,
        clip=clip,
        codes=codes,
        segment_frames=segment_frames,
    )
    return voices_manifest(recipe.model_id, "built_on_this_machine", directory, [tone])


def demo_manifest(recipe: DemoSize, directory: Path) -> dict[str, Any]:
    """``manifest.json`` of the files in ``directory``."""
    demo = BuiltArtifact(
        model_id=recipe.model_id,
        version=recipe.version,
        description="CSM's architecture at toy size on seeded weights. Its speech is noise.",
        tokenizer_repo="psionic-demo/tokenizer-tiny",
        mimi_repo="psionic-demo/mimi-tiny",
        roles=ROLES,
        quantization="none_bfloat16_safetensors",
        license_posture="demo_weights_made_here_no_upstream_license_not_for_customers",
        temperature=0.9,
        top_k=50,
        note="Its weights are seeded numbers: the speech is noise.",
    )
    return artifact_manifest(demo, directory)
