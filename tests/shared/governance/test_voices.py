"""Voice profiles by their manifest: what each may be used for, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SpeechError
from shared.governance.artifacts import load_artifact
from shared.governance.voices import VoiceManifest, parse_voices

Document = dict[str, Any]
Write = Callable[[Document, Document], Path]


def parse(document: Document) -> VoiceManifest:
    return parse_voices(json.dumps(document).encode())


def refusal(document: Document) -> str:
    with pytest.raises(SpeechError) as caught:
        parse(document)
    return caught.value.code


def test_profile_is_published_as_the_contract_says(voices: Document) -> None:
    """A voice_profiles[] entry has the contract's keys, in its order."""
    published = parse(voices).default.published()

    assert list(published) == [
        "id",
        "display_name",
        "approval_status",
        "runtime_admission",
        "source_prompt_profile_id",
        "speaker",
        "source",
        "prompt_transcript_sha256",
        "prompt_audio_sha256",
        "mimi_tokens_sha256",
        "prompt_codebooks",
        "consent_posture",
        "allowed_product_surfaces",
        "disallowed_product_surfaces",
        "retention_policy",
        "redaction_policy",
        "watermarking",
        "watermarking_refusal_code",
    ]
    assert published["prompt_codebooks"] == {
        "source": "committed_parity_fixture_digest_and_prefix",
        "sample_rate_hz": 24_000,
        "codebook_count": 32,
        "frame_count": 375,
        "prefix_frame_count": 375,
        "prefix_codebook_count": 32,
        "tokens_sha256": f"sha256:{'2' * 64}",
    }


def test_published_profile_does_not_carry_the_transcript(voices: Document) -> None:
    """The prompt's text is known by its digest only."""
    assert "a transcript" not in json.dumps(parse(voices).default.published())


def test_profile_without_a_prompt(voices: Document) -> None:
    """A profile may have no prompt; then nothing of one is claimed."""
    voices["profiles"][0] |= {"prompt": None, "prompt_codebook_tokens_sha256": None}

    profile = parse(voices).default

    assert not profile.has_prompt
    assert profile.prompt_frame_count == 0
    assert profile.published()["prompt_codebooks"] is None
    assert profile.published()["mimi_tokens_sha256"] is None


def test_prompt_positions_are_known_at_the_door(voices: Document) -> None:
    """The positions of the context segment are stated, so that a gateway needs no tokenizer."""
    assert parse(voices).default.prompt_frame_count == 389


def test_find(voices: Document) -> None:
    """A governed id finds its profile; a raw prompt id is no governed id."""
    manifest = parse(voices)

    assert manifest.find("openagents/default_female_v1") is manifest.profiles[0]
    with pytest.raises(SpeechError) as caught:
        manifest.find("conversational_b")
    assert caught.value.code == "voice_profile_unavailable"
    assert caught.value.param == "voice_profile_id"


def test_default_is_the_governed_voice_or_the_first(voices: Document) -> None:
    """The default voice is found by name, not by its place in the file."""
    other = voices["profiles"][0] | {"profile_id": "openagents/other"}
    both = parse(voices | {"profiles": [other, voices["profiles"][0]]})
    only = parse(voices | {"profiles": [other]})

    assert both.default.profile_id == "openagents/default_female_v1"
    assert only.default.profile_id == "openagents/other"


def test_duplicate_profile_is_refused(voices: Document) -> None:
    """Two profiles of one id would leave open which one speaks."""
    voices["profiles"].append(voices["profiles"][0])

    assert refusal(voices) == "voice_profile_descriptor_unavailable"


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": "psionic.csm.voice_profiles.v2"},
        {"profiles": []},
        {"watermark_policy": {}},
        {"unheard_of": 1},
    ],
)
def test_malformed_manifest_is_refused(voices: Document, change: Document) -> None:
    """Unknown schema, no profile, or other keys: refused, whole."""
    assert refusal(voices | change) == "voice_profile_descriptor_unavailable"


@pytest.mark.parametrize(
    "change",
    [
        {"profile_id": " "},
        {"runtime_admission": "not_admitted"},
        {"approval_status": "pending"},
        {"speaker": -1},
        {"speaker": 1.0},
        {"speaker": True},
        {"allowed_product_surfaces": []},
        {"allowed_product_surfaces": ["public_user_voice_clone"]},
        {"prompt_transcript_sha256": f"sha256:{'0' * 64}"},
        {"prompt_audio_sha256": "c247"},
        {"prompt_codebook_tokens_sha256": None},
        {"consent_posture": "with\nnewline"},
        {"surprise": 1},
    ],
    ids=lambda change: ",".join(f"{k}={str(v)[:20]}" for k, v in change.items()),
)
def test_malformed_profile_is_refused(voices: Document, change: Document) -> None:
    """Each rule on a profile holds at load, before anybody can name the profile."""
    voices["profiles"][0] |= change

    assert refusal(voices) == "voice_profile_descriptor_unavailable"


@pytest.mark.parametrize(
    "key", ["prompt", "prompt_codebook_tokens_sha256", "watermark_policy", "consent_posture"]
)
def test_missing_profile_key_is_refused(voices: Document, key: str) -> None:
    """Every key is required, also those that may be null."""
    del voices["profiles"][0][key]

    assert refusal(voices) == "voice_profile_descriptor_unavailable"


def test_watermark_status_must_be_a_known_posture(voices: Document) -> None:
    """A profile can't claim a watermark that nobody makes."""
    policy = voices["profiles"][0]["watermark_policy"] | {"status": "supported"}
    voices["profiles"][0]["watermark_policy"] = policy

    assert refusal(voices) == "voice_profile_descriptor_unavailable"


@pytest.mark.parametrize(
    "name",
    ["csm_config_digest", "csm_model_digest", "llama_tokenizer_digest", "mimi_weight_digest"],
)
def test_profile_of_another_artifact_is_refused(
    write: Write, manifest: Document, voices: Document, name: str
) -> None:
    """A voice is bound to the files it was made with, each of them."""
    voices["profiles"][0][name] = f"sha256:{'0' * 64}"

    with pytest.raises(SpeechError, match=name) as caught:
        load_artifact(write(manifest, voices))
    assert caught.value.code == "voice_profile_digest_mismatch"


def test_voices_of_another_model_are_refused(
    write: Write, manifest: Document, voices: Document
) -> None:
    """A voice manifest names the model that it belongs to."""
    voices["model_id"] = "another/model"

    with pytest.raises(SpeechError, match="model_id") as caught:
        load_artifact(write(manifest, voices))
    assert caught.value.code == "voice_profile_digest_mismatch"


def test_prompt_that_fills_the_window_is_refused(
    write: Write, manifest: Document, voices: Document
) -> None:
    """A prompt must leave room for what is to be said."""
    voices["profiles"][0]["prompt"] |= {"audio_frame_count": 2000, "segment_frame_count": 2047}
    manifest["frame_contract"]["max_seq_len"] = 2047

    with pytest.raises(SpeechError, match="window"):
        load_artifact(write(manifest, voices))
