"""Two small artifacts: manifests alone, since a gateway reads nothing else."""

from __future__ import annotations

from pathlib import Path

from shared.governance.artifacts import Artifact, load_artifact
from tests.manifests import MANIFEST, PROFILE, VOICES, write_manifests

MODEL_ID = "psionic-test/csm-tiny"
VOICE = "openagents/default_female_v1"
PLAIN_VOICE = "openagents/plain_v1"
PROMPT_FRAMES = 120
MAX_SEQ_LEN = 1024


def write_artifact(directory: Path, weights: str = "a", max_seq_len: int = MAX_SEQ_LEN) -> Artifact:
    """An artifact of two voices, one unprompted. Its weights' digest is one hex letter."""
    digest = f"sha256:{weights * 64}"
    bound = {
        **PROFILE,
        "csm_model_digest": digest,
        "compatibility": {**PROFILE["compatibility"], "csm_model_id": MODEL_ID},
    }
    prompt = {**PROFILE["prompt"], "audio_frame_count": 100, "segment_frame_count": PROMPT_FRAMES}
    profiles = [
        {**bound, "profile_id": VOICE, "prompt": prompt},
        {
            **bound,
            "profile_id": PLAIN_VOICE,
            "prompt": None,
            "prompt_codebook_tokens_sha256": None,
        },
    ]
    files = MANIFEST["files"]
    manifest = {
        **MANIFEST,
        "artifact_id": f"{MODEL_ID}@{digest}",
        "model_id": MODEL_ID,
        "files": {**files, "model.safetensors": {**files["model.safetensors"], "sha256": digest}},
        "frame_contract": {**MANIFEST["frame_contract"], "max_seq_len": max_seq_len},
    }
    voices = {**VOICES, "model_id": MODEL_ID, "profiles": profiles}
    return load_artifact(write_manifests(directory, manifest, voices))
