"""An artifact's files as they are read: checked against its manifest, named when one is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_worker.codec import StreamingMimi
from gpu_worker.model.checkpoint import load_checkpoint, load_config, load_mimi, load_state
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.layouts import torchtune_shapes
from shared.errors import PENDING_PHASES, SpeechError
from shared.governance.artifacts import Artifact, load_artifact
from tests.gpu_worker.rebound import rebind

Edit = Callable[[bytes], bytes]


@pytest.fixture
def directory(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    """A copy of the artifact that a test may damage."""
    return shutil.copytree(tiny_artifact.directory, tmp_path / "artifact")


def refused(artifact: Artifact, **places: Any) -> SpeechError:
    with pytest.raises(SpeechError) as caught:
        load_checkpoint(artifact, **places)
    assert caught.value.code in PENDING_PHASES
    return caught.value


def refusal(artifact: Artifact, **places: Any) -> str:
    return refused(artifact, **places).code


def test_everything_is_loaded(tiny_artifact: Artifact) -> None:
    """Configuration, tokenizer, voices, weights and codec come out ready for the engine."""
    checkpoint = load_checkpoint(tiny_artifact)

    shapes = torchtune_shapes(checkpoint.config)
    assert {name: tuple(each.shape) for name, each in checkpoint.state.items()} == shapes
    assert {each.dtype for each in checkpoint.state.values()} == {torch.float32}
    assert list(checkpoint.voices) == ["openagents/default_female_v1"]
    assert checkpoint.tokenizer.encode(0, "x")[0] == checkpoint.config.bos_id
    assert not any(each.requires_grad for each in checkpoint.mimi.parameters())


def test_the_model_takes_the_state(tiny_artifact: Artifact) -> None:
    """The engine's model has exactly these names and shapes."""
    config = load_config(tiny_artifact)

    CsmModel(config).load_state_dict(load_state(tiny_artifact, config), strict=True)


def test_decoding_half_is_enough(tiny_artifact: Artifact) -> None:
    """The codec without its encoder sounds like the whole one."""
    config = load_config(tiny_artifact)
    codes = torch.full((1, 32), 9)
    half = load_mimi(tiny_artifact, config)
    whole = load_mimi(tiny_artifact, config, decode_only=False)
    active = torch.ones(1, dtype=torch.bool)

    assert sum(each.numel() for each in half.parameters()) < sum(
        each.numel() for each in whole.parameters()
    )
    assert (
        StreamingMimi(half, 1)
        .step(codes, active)
        .equal(StreamingMimi(whole, 1).step(codes, active))
    )


@pytest.mark.parametrize(
    ("name", "missing", "wrong"),
    [
        ("config.json", "csm_config_unavailable", "csm_config_invalid"),
        ("tokenizer.json", "llama_tokenizer_unavailable", "llama_tokenizer_unavailable"),
        ("model.safetensors", "csm_model_unavailable", "csm_runtime_load_failed"),
        ("mimi.safetensors", "mimi_model_unavailable", "csm_runtime_load_failed"),
        ("mimi.json", "mimi_model_unavailable", "csm_runtime_load_failed"),
        (
            "prompts/demo_formant_tone.safetensors",
            "voice_profile_source_unavailable",
            "voice_profile_digest_mismatch",
        ),
    ],
)
def test_missing_cut_and_changed_files_have_their_code(
    directory: Path, name: str, missing: str, wrong: str
) -> None:
    """Each file that is not there, cut short or changed in one bit refuses with its own code."""
    artifact, path = load_artifact(directory), directory / name
    data = path.read_bytes()

    path.write_bytes(data[:-1])
    assert refusal(artifact) == wrong
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert refusal(artifact) == wrong
    path.unlink()
    assert refusal(artifact) == missing


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "prompts/demo_formant_tone.safetensors"]
)
def test_a_reason_names_its_file_once(directory: Path, name: str) -> None:
    """Cut, changed or empty: the reason says of which file it speaks, and says it once."""
    artifact, path = load_artifact(directory), directory / name
    data = path.read_bytes()

    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        assert refused(artifact).message.count(path.name) == 1


def changed_json(change: Callable[[dict[str, Any]], Any]) -> Edit:
    def edit(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "code"),
    [
        ("config.json", lambda _: b"\xff", "csm_config_invalid"),
        (
            "config.json",
            changed_json(lambda d: d.update(num_codebooks=31)),
            "csm_config_invalid",
        ),
        (
            "config.json",
            changed_json(lambda d: d.update(bos_token_id=5)),
            "llama_tokenizer_unavailable",
        ),
        (
            "config.json",
            changed_json(lambda d: d.update(intermediate_size=49)),
            "csm_runtime_load_failed",
        ),
        ("tokenizer.json", lambda _: b"{}", "llama_tokenizer_unavailable"),
        ("model.safetensors", lambda data: data[:-2], "csm_runtime_load_failed"),
        ("model.safetensors", lambda _: b"\x00" * 8, "csm_runtime_load_failed"),
        ("mimi.safetensors", lambda data: data[:-2], "csm_runtime_load_failed"),
        ("mimi.json", lambda _: b"[]", "csm_runtime_load_failed"),
        ("mimi.json", lambda _: b"{}", "csm_runtime_load_failed"),
        (
            "mimi.json",
            changed_json(lambda d: d["seanet"].update(ratios=[8, 6, 5, 2])),
            "csm_runtime_load_failed",
        ),
        (
            "mimi.json",
            changed_json(lambda d: d["seanet"].update(n_filters=5)),
            "csm_runtime_load_failed",
        ),
        (
            "mimi.json",
            changed_json(lambda d: d["seanet"].update(activation="Elo")),
            "csm_runtime_load_failed",
        ),
        ("mimi.json", changed_json(lambda d: d.update(frame_rate=0)), "csm_runtime_load_failed"),
        (
            "tokenizer.json",
            changed_json(lambda d: d["model"]["vocab"].update(H=5000)),
            "llama_tokenizer_unavailable",
        ),
        (
            "tokenizer.json",
            changed_json(lambda d: d["added_tokens"][0].update(special=False)),
            "llama_tokenizer_unavailable",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    directory: Path, name: str, edit: Edit, code: str
) -> None:
    """Right digests don't help files that make no model, or not the same one."""
    artifact = rebind(directory, {name: edit((directory / name).read_bytes())})

    assert refusal(artifact) == code


def test_files_are_found_in_the_hub_cache(directory: Path, tmp_path: Path) -> None:
    """Without files of its own an artifact loads from hub caches, past a stale snapshot."""
    artifact = load_artifact(directory)
    root = tmp_path / "hub"
    for name, repo in [
        ("model.safetensors", "models--psionic-demo--csm-tiny-test"),
        ("tokenizer.json", "models--psionic-demo--tokenizer-tiny"),
        ("mimi.safetensors", "models--psionic-demo--mimi-tiny"),
    ]:
        for snapshot, data in [("a", b"stale"), ("b", (directory / name).read_bytes())]:
            place = root / repo / "snapshots" / snapshot / name
            place.parent.mkdir(parents=True)
            place.write_bytes(data)
        (directory / name).unlink()

    assert load_checkpoint(artifact, hub_roots=[tmp_path / "none", root]).state
    assert refusal(artifact) == "llama_tokenizer_unavailable"


def test_blobs_are_found_by_digest(directory: Path, tmp_path: Path) -> None:
    """A blob without any snapshot is found by the digest that names it."""
    artifact = load_artifact(directory)
    blob = (
        tmp_path
        / "hub/models--psionic-demo--csm-tiny-test/blobs"
        / artifact.digest.removeprefix("sha256:")
    )
    blob.parent.mkdir(parents=True)
    (directory / "model.safetensors").rename(blob)

    assert load_checkpoint(artifact, hub_roots=[tmp_path / "hub"]).state


def test_only_wrong_candidates_name_every_one(directory: Path, tmp_path: Path) -> None:
    """When no candidate is the right file, the refusal tells about all of them."""
    artifact = load_artifact(directory)
    stale = tmp_path / "hub/models--psionic-demo--csm-tiny-test/snapshots/a/model.safetensors"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"stale")
    (directory / "model.safetensors").write_bytes(b"damaged")

    with pytest.raises(SpeechError, match=r"7 bytes.*5 bytes") as caught:
        load_checkpoint(artifact, hub_roots=[tmp_path / "hub"])
    assert caught.value.code == "csm_runtime_load_failed"


def test_weights_in_the_other_dtype(tiny_artifact: Artifact) -> None:
    """The state comes in the dtype that was asked for, whatever the file holds."""
    state = load_state(tiny_artifact, load_config(tiny_artifact), dtype=torch.bfloat16)

    assert {each.dtype for each in state.values()} == {torch.bfloat16}
