"""A voice's prompt is what its profile says, or the worker refuses to serve it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.model.checkpoint import load_config, load_tokenizer
from gpu_worker.model.weights import write_safetensors
from gpu_worker.voices import VoicePrompt, context_of, load_voice_prompts
from shared.digests import file_sha256, prompt_tokens_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, load_artifact

PROFILE = "openagents/default_female_v1"


def load(artifact: Artifact) -> dict[str, VoicePrompt]:
    tokenizer = load_tokenizer(artifact, load_config(artifact))
    return load_voice_prompts(artifact, tokenizer, 2048)


def republish(
    artifact: Artifact, directory: Path, tensors: dict[str, Tensor], **change: Any
) -> Artifact:
    """The artifact with another prompt file and its digest, and a changed profile."""
    shutil.copytree(artifact.directory, directory)
    profile_prompt = artifact.voices.default.prompt
    assert profile_prompt is not None
    write_safetensors(directory / profile_prompt.file, tensors)
    voices = json.loads((directory / "voices.json").read_text())
    prompt = voices["profiles"][0]["prompt"] | change.pop("prompt", {})
    voices["profiles"][0] |= change | {"prompt": prompt}
    (directory / "voices.json").write_text(json.dumps(voices))
    manifest = json.loads((directory / "manifest.json").read_text())
    for name in (profile_prompt.file, "voices.json"):
        size = (directory / name).stat().st_size
        manifest["files"][name] |= {"sha256": file_sha256(directory / name), "bytes": size}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return load_artifact(directory)


def test_prompt_is_the_governed_one(tiny_artifact: Artifact) -> None:
    """Codes have the governed digest, and the segment is text, audio and end frame."""
    profile = tiny_artifact.voices.default

    voice = load(tiny_artifact)[PROFILE]

    assert prompt_tokens_sha256(voice.codes.tolist()) == profile.prompt_codebook_tokens_sha256
    assert len(voice.segment) == profile.prompt_frame_count
    assert voice.segment.tokens[-5:-1, :32].equal(voice.codes.T)
    assert not voice.segment.tokens[-1].any()
    assert voice.speaker == profile.speaker


def test_codes_of_any_integer_type(tiny_artifact: Artifact, tmp_path: Path) -> None:
    """The digest is of the values, not of the type that the file keeps them in."""
    codes = load(tiny_artifact)[PROFILE].codes

    wide = republish(tiny_artifact, tmp_path / "a", {"codes": codes.to(torch.int32)})

    assert load(wide)[PROFILE].codes.equal(codes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda codes: {"codes": codes.T.contiguous()},
        lambda codes: {"codes": codes[:, :-1].contiguous()},
        lambda codes: {"codes": codes.roll(1, 0)},
        lambda codes: {"codes": codes + 2048},
        lambda codes: {"codes": codes - 2048},
        lambda codes: {"codes": codes.to(torch.float32)},
        lambda codes: {"other": codes},
    ],
    ids=["transposed", "short", "rolled", "too_high", "negative", "floats", "other_name"],
)
def test_other_codes_are_refused(tiny_artifact: Artifact, tmp_path: Path, damage: Any) -> None:
    """A prompt file with a right digest of its own but other codes is not the governed prompt."""
    codes = load(tiny_artifact)[PROFILE].codes
    other = republish(tiny_artifact, tmp_path / "a", damage(codes))

    with pytest.raises(SpeechError) as caught:
        load(other)
    assert caught.value.code == "voice_profile_digest_mismatch"


def test_stated_length_must_be_true(tiny_artifact: Artifact, tmp_path: Path) -> None:
    """The positions that the gateway counts with are those that the prompt really takes."""
    voice = load(tiny_artifact)[PROFILE]
    other = republish(
        tiny_artifact,
        tmp_path / "a",
        {"codes": voice.codes},
        prompt={"segment_frame_count": len(voice.segment) + 1},
    )

    with pytest.raises(SpeechError, match="frames") as caught:
        load(other)
    assert caught.value.code == "voice_profile_digest_mismatch"


def test_context_follows_the_policy(tiny_artifact: Artifact) -> None:
    """No context, the profile's own, or a refusal with the code."""
    voices = load(tiny_artifact)

    assert context_of(voices, PROFILE, "none") == ()
    assert context_of(voices, PROFILE, "prompt_profile_only") == (voices[PROFILE].segment,)
    with pytest.raises(SpeechError) as caught:
        context_of({}, PROFILE, "prompt_profile_only")
    assert caught.value.code == "prompt_profile_context_unavailable"
    with pytest.raises(SpeechError) as caught:
        context_of(voices, PROFILE, "everything")
    assert caught.value.code == "invalid_context_policy"
