"""``psionic-csm artifacts quantize``: a new artifact, or a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main
from cli.exits import NOT_GENUINE, NOT_STARTED, OK, USAGE
from gpu_worker.model.demo import build_demo
from shared.governance.artifacts import Artifact, load_artifact


@pytest.fixture
def parent(tmp_path: Path) -> Artifact:
    return build_demo(tmp_path / "parent", "tiny")


def quantize(parent: Artifact, target: Path, *options: str) -> int:
    return main.run(["artifacts", "quantize", *options, str(parent.directory), str(target)])


def test_a_quantized_artifact_has_an_id_and_a_parent(
    parent: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new directory is whole, never answers to the parent's id, and says where it is from."""
    assert quantize(parent, tmp_path / "small", "--bits", "8") == OK

    made = load_artifact(tmp_path / "small")
    assert made.artifact_id != parent.artifact_id
    assert made.manifest.parent_artifact_id == parent.artifact_id
    said = capsys.readouterr().out
    assert made.artifact_id in said
    assert parent.artifact_id in said
    assert main.run(["artifacts", "verify", str(tmp_path / "small")]) == OK


def test_other_bits_are_wrong_usage(
    parent: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what was measured to be worth it can be made; nothing is left behind."""
    assert quantize(parent, tmp_path / "small", "--bits", "4") == USAGE
    assert "8 bits" in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_what_is_there_is_never_overwritten(
    parent: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target that exists stays as it is."""
    (tmp_path / "small").mkdir()

    assert quantize(parent, tmp_path / "small") == NOT_STARTED
    assert "exists" in capsys.readouterr().err
    assert not list((tmp_path / "small").iterdir())


def test_a_source_that_is_none_is_refused(
    parent: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No artifact, and one that was quantized before, have a code in their message."""
    assert main.run(["artifacts", "quantize", str(tmp_path), str(tmp_path / "x")]) == NOT_STARTED
    assert quantize(parent, tmp_path / "small") == OK
    assert quantize(load_artifact(tmp_path / "small"), tmp_path / "smaller") == NOT_STARTED
    assert capsys.readouterr().err.count("artifact_unavailable") == 2


def test_weights_that_are_not_the_manifest_s_are_not_quantized(
    parent: Artifact, tmp_path: Path
) -> None:
    """A damaged file doesn't get a digest of its own."""
    weights = parent.directory / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)

    assert quantize(parent, tmp_path / "small") == NOT_GENUINE
    assert not (tmp_path / "small").exists()
