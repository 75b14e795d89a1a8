"""Artifacts by their manifests: what one says of itself, how it is found, what is refused."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry, load_artifact
from shared.settings import RUNTIME_IMAGE_UNSET

Document = dict[str, Any]
Write = Callable[[Document, Document], Path]

WEIGHTS = "sha256:2e7721144afe38b906d4f1048671da639fe142423f4a26283606ecebe894f4bf"
TOKENIZER = "sha256:79e3e522635f3171300913bb421464a87de6222182a0570b9b2ccba2a964b2b4"
MIMI = "sha256:09b782f0629851a271227fb9d36db65c041790365f11bbe5d3d59369cf863f50"
ARTIFACT_ID = f"sesame/csm-1b@{WEIGHTS}"


@pytest.fixture
def artifact(write: Write, manifest: Document, voices: Document) -> Artifact:
    return load_artifact(write(manifest, voices))


def refusal(directory: Path) -> str:
    with pytest.raises(SpeechError) as caught:
        load_artifact(directory)
    return caught.value.code


def test_limits_are_published_as_the_manifest_states_them(
    write: Write, manifest: Document, voices: Document
) -> None:
    """A note and the known words, or nothing of an artifact that states none."""
    assert load_artifact(write(manifest, voices)).published_limits() is None
    manifest["speech_limits"] = {"note": "It knows two words.", "vocabulary": ["hello", "two"]}

    assert load_artifact(write(manifest, voices)).published_limits() == manifest["speech_limits"]


def test_descriptor_is_published_as_the_contract_says(artifact: Artifact) -> None:
    """artifact_descriptor has the contract's keys, in its order, from the manifest."""
    assert list(artifact.published_descriptor().items()) == [
        ("artifact_id", ARTIFACT_ID),
        ("model_id", "sesame/csm-1b"),
        ("csm_repo", "sesame/csm-1b"),
        ("llama_tokenizer_repo", "meta-llama/Llama-3.2-1B"),
        ("mimi_repo", "kyutai/moshiko-pytorch-bf16"),
        ("mimi_weight", "tokenizer-e351c8d8-checkpoint125.safetensors"),
        (
            "frame_contract",
            {
                "frame_lanes": 33,
                "audio_codebook_lanes": 32,
                "text_lane_index": 32,
                "max_seq_len": 2048,
                "generation_frame_ms": 80,
                "sample_rate_hz": 24_000,
            },
        ),
    ]


def test_governance_is_published_as_the_contract_says(artifact: Artifact) -> None:
    """governance has the contract's keys, in its order, from the two manifests."""
    governance = artifact.published_governance(RUNTIME_IMAGE_UNSET)

    assert list(governance) == [
        "schema_version",
        "voice_profile_governance_schema_version",
        "artifact_id",
        "artifact_hash",
        "model_id",
        "model_version",
        "source_repositories",
        "license_posture",
        "runtime_image_ref",
        "quantization",
        "tokenizer_dependency",
        "audio_codec_dependency",
        "allowed_voice_profile_ids",
        "disallowed_voice_use_cases",
        "watermark_status",
        "watermark_refusal_code",
        "canary_promotion",
        "primary_promotion",
        "rollback_target",
        "missing_governance_blocks",
        "autopilot_consumption",
    ]
    assert governance["artifact_hash"] == WEIGHTS
    assert governance["tokenizer_dependency"] == f"meta-llama/Llama-3.2-1B@{TOKENIZER}"
    assert governance["audio_codec_dependency"] == (
        f"kyutai/moshiko-pytorch-bf16:tokenizer-e351c8d8-checkpoint125.safetensors@{MIMI}"
    )
    assert governance["allowed_voice_profile_ids"] == ["openagents/default_female_v1"]


def test_missing_governance_blocks_are_computed(
    write: Write, manifest: Document, voices: Document
) -> None:
    """A block is listed as long as its evidence is missing, and no longer."""
    bare = load_artifact(write(manifest, voices))
    manifest["evidence"] = {
        "license_review": "review-7",
        "voice_safety_control": None,
        "autopilot_shadow_business_outcome": "report-3",
    }
    proven = load_artifact(write(manifest, voices))

    assert bare.missing_governance_blocks(RUNTIME_IMAGE_UNSET) == [
        "license_review",
        "private_watermark_or_equivalent_voice_safety_control",
        "runtime_image_ref",
        "autopilot_shadow_business_outcome_evidence",
    ]
    assert proven.missing_governance_blocks("registry/image@sha256:1") == [
        "private_watermark_or_equivalent_voice_safety_control"
    ]


def test_safety_is_published_as_the_voices_say(artifact: Artifact) -> None:
    """safety_capabilities takes the watermark posture from the voice manifest."""
    safety = artifact.published_safety()

    assert safety["watermarking"] == "unsupported_operator_accepted_limited_dogfood"
    assert safety["watermarking_refusal"]["code"] == "csm_watermarking_unavailable"


def test_queue_name_is_readable(artifact: Artifact) -> None:
    """An operator reads namespace, model and weights from the queue's name."""
    assert artifact.queue_name("csm") == "csm.sesame-csm-1b.2e7721144afe"


def test_no_directory_is_refused(tmp_path: Path) -> None:
    """A directory without a manifest is no artifact."""
    assert refusal(tmp_path / "nowhere") == "artifact_unavailable"


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": "psionic.csm.artifact.v2"},
        {"artifact_id": f"sesame/csm-1b@sha256:{'0' * 64}"},
        {"artifact_id": ARTIFACT_ID + "\n"},
        {"model_id": ""},
        {"model_id": "two\nlines"},
        {"unheard_of": 1},
        {"files": {}},
        {"frame_contract": {"frame_lanes": 33}},
        {"sampling_defaults": {"temperature": "0.9", "top_k": 50}},
        {"sampling_defaults": {"temperature": 2.5, "top_k": 50}},
        {"promotion": None},
    ],
    ids=lambda change: ",".join(f"{k}={str(v)[:20]}" for k, v in change.items()),
)
def test_malformed_manifest_is_refused(
    write: Write, manifest: Document, voices: Document, change: Document
) -> None:
    """Anything but the schema is refused, whole."""
    assert refusal(write(manifest | change, voices)) == "artifact_unavailable"


@pytest.mark.parametrize("key", ["evidence", "quantization", "license_posture", "model_version"])
def test_missing_key_is_refused(
    write: Write, manifest: Document, voices: Document, key: str
) -> None:
    """No key has a silent default."""
    del manifest[key]

    assert refusal(write(manifest, voices)) == "artifact_unavailable"


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("../escape", {"role": "voice_prompt", "sha256": WEIGHTS, "bytes": 1}),
        ("/etc/passwd", {"role": "voice_prompt", "sha256": WEIGHTS, "bytes": 1}),
        ("more.safetensors", {"role": "csm_model", "sha256": WEIGHTS, "bytes": 1}),
        ("x", {"role": "voice_prompt", "sha256": WEIGHTS[7:], "bytes": 1}),
        ("x", {"role": "voice_prompt", "sha256": WEIGHTS.upper(), "bytes": 1}),
        ("x", {"role": "unheard_of", "sha256": WEIGHTS, "bytes": 1}),
        ("x", {"role": "voice_prompt", "sha256": WEIGHTS}),
        ("x", {"role": "voice_prompt", "sha256": WEIGHTS, "bytes": True}),
    ],
)
def test_bad_file_entry_is_refused(
    write: Write, manifest: Document, voices: Document, name: str, entry: Document
) -> None:
    """File names stay below the directory, roles are known and digests have one spelling."""
    manifest["files"][name] = entry

    assert refusal(write(manifest, voices)) == "artifact_unavailable"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 1}', "\x00", "[" * 100_000])
def test_what_is_not_a_json_object_is_refused(tmp_path: Path, text: str) -> None:
    """Broken JSON, and JSON that says a key twice, ends in the same refusal."""
    tmp_path.joinpath("manifest.json").write_text(text)

    assert refusal(tmp_path) == "artifact_unavailable"


def test_voices_of_other_bytes_are_refused(
    write: Write, manifest: Document, voices: Document
) -> None:
    """The voice manifest is the very file that the artifact's manifest names."""
    directory = write(manifest, voices)
    path = directory / "voices.json"
    path.write_bytes(path.read_bytes() + b"\n")

    assert refusal(directory) == "voice_profile_digest_mismatch"


def test_missing_voices_are_refused(write: Write, manifest: Document, voices: Document) -> None:
    """An artifact without its voice manifest is not served."""
    directory = write(manifest, voices)
    directory.joinpath("voices.json").unlink()

    assert refusal(directory) == "voice_profile_descriptor_unavailable"


def test_prompt_file_must_be_in_the_manifest(
    write: Write, manifest: Document, voices: Document
) -> None:
    """A profile's prompt is one of the artifact's files."""
    del manifest["files"]["prompts/b.safetensors"]

    assert refusal(write(manifest, voices)) == "voice_profile_source_unavailable"


def test_candidates_look_beside_the_manifest_and_in_the_hub_cache(
    artifact: Artifact, tmp_path: Path
) -> None:
    """Every place that may hold a file is offered once: directory, blob, then snapshots."""
    root = tmp_path / "hub"
    repo = root / "models--sesame--csm-1b"
    blob = repo / "blobs" / WEIGHTS.removeprefix("sha256:")
    stale = repo / "snapshots" / "a" / "model.safetensors"
    linked = repo / "snapshots" / "b" / "model.safetensors"
    beside = artifact.directory / "model.safetensors"
    for path in (blob, stale, beside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    linked.parent.mkdir(parents=True)
    linked.symlink_to(blob)

    assert list(artifact.candidates("csm_model", [root])) == [beside, blob, stale]
    assert list(artifact.candidates("llama_tokenizer", [root])) == []


def test_a_hub_cache_that_is_another_user_s(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may not be looked at is offered, so that whoever opens it says why it can't be read."""
    root = tmp_path / "hub"

    def forbidden(path: Path, *_: Any, **__: Any) -> Any:
        if path.is_relative_to(root):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return os.path.isfile(path)

    monkeypatch.setattr(Path, "is_file", forbidden)
    monkeypatch.setattr(Path, "glob", forbidden)

    blob = root / "models--sesame--csm-1b/blobs" / WEIGHTS.removeprefix("sha256:")
    assert list(artifact.candidates("csm_model", [root])) == [blob]


def test_registry_resolves_ids_and_digests(artifact: Artifact) -> None:
    """An artifact answers to its id and to its bare digest; no name means the default."""
    registry = ArtifactRegistry([artifact])

    assert registry.resolve(None) is artifact
    assert registry.resolve(ARTIFACT_ID) is artifact
    assert registry.resolve(WEIGHTS) is artifact


@pytest.mark.parametrize("name", ["", "sesame/csm-1b", ARTIFACT_ID.upper(), WEIGHTS[7:]])
def test_registry_refuses_other_names(artifact: Artifact, name: str) -> None:
    """Nothing near an id passes for one."""
    with pytest.raises(SpeechError) as caught:
        ArtifactRegistry([artifact]).resolve(name)

    assert caught.value.code == "artifact_unavailable"
    assert caught.value.param == "artifact_id"


def test_registry_wants_distinct_artifacts(artifact: Artifact) -> None:
    """No artifact at all, or one twice, is a mistake of configuration."""
    with pytest.raises(SpeechError, match="no artifact directory"):
        ArtifactRegistry.load([])
    with pytest.raises(SpeechError, match="twice"):
        ArtifactRegistry([artifact, artifact])


def test_published_documents_are_json(artifact: Artifact) -> None:
    """What is published can be sent as it is."""
    documents = [
        artifact.published_descriptor(),
        artifact.published_digests(),
        artifact.published_governance("image"),
        artifact.published_voices(),
        artifact.published_safety(),
    ]

    assert json.loads(json.dumps(documents)) == documents
