"""The seeded demo: the same bytes on every machine, and put there whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from gpu_worker.codec import StreamingMimi
from gpu_worker.model.checkpoint import load_checkpoint
from gpu_worker.model.demo import build_demo
from gpu_worker.model.demo_weights import seeded
from shared.governance.artifacts import Artifact, load_artifact

# Equal on every machine: the weights come from integers.
DEMO_ID = (
    "psionic-demo/csm-tiny@sha256:6822b38b5bba0a53e993787116fe0fdf68d0f4206902bf791537d815bab5cea8"
)
TINY_ID = (
    "psionic-demo/csm-tiny-test@"
    "sha256:e798882c92dd86446f38f0194bd0d549a3a878de0ad9333fef3b60c16906cdf9"
)
DEMO_MIMI = "sha256:db9b6cc6f4aeb482109b7e6e4149e8d12e39946f39b98c440bc75cf3d56732a9"


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and inode of every file."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_ino)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_artifact_ids_are_pinned(demo_artifact: Artifact, tiny_artifact: Artifact) -> None:
    """The same weights, hence the same ids, everywhere and for good."""
    assert demo_artifact.artifact_id == DEMO_ID
    assert tiny_artifact.artifact_id == TINY_ID
    assert demo_artifact.manifest.mimi_weight_digest == DEMO_MIMI


def test_demo_is_small_and_says_what_it_is(demo_artifact: Artifact) -> None:
    """Under 40 MB, and its ids leave no doubt that this is no CSM-1B."""
    total = sum(size for size, _ in files_of(demo_artifact.directory).values())

    assert total < 40_000_000
    assert "demo" in demo_artifact.artifact_id
    assert demo_artifact.queue_name("csm").startswith("csm.psionic-demo-csm-tiny.")


def test_demo_has_the_real_frame_contract(demo_artifact: Artifact) -> None:
    """Ids, codebooks, rates and window are those of CSM-1B."""
    config = load_checkpoint(demo_artifact).config

    assert (config.num_codebooks, config.codebook_size, config.audio_vocab_size) == (32, 2048, 2051)
    assert (config.max_seq_len, config.sample_rate, config.frame_rate) == (2048, 24_000, 12.5)


def test_speech_is_neither_silent_nor_deafening(demo_artifact: Artifact) -> None:
    """Any codes make noise at a level that the silence stop doesn't mistake for silence."""
    stream = StreamingMimi(load_checkpoint(demo_artifact).mimi, 2)
    active = torch.ones(2, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(2048, (25, 2, 32), generator=generator)
    codes[:, 1] = codes[:1, 1]  # one lane repeats itself, as greedy speech may

    frames = torch.stack([stream.step(each, active) for each in codes]).float() / 32767

    level = frames.square().mean(dim=-1).sqrt()
    assert level.min().item() > 0.02
    assert level.max().item() < 0.4
    assert frames.mean().abs().item() < 0.01


def test_prompt_says_something(demo_artifact: Artifact) -> None:
    """The voice's prompt has 25 to 40 frames of codes that change."""
    codes = load_checkpoint(demo_artifact).voices["openagents/default_female_v1"].codes

    assert codes.shape == (32, 30)
    assert len(set(codes[0].tolist())) > 5


def test_building_again_does_nothing(tiny_artifact: Artifact) -> None:
    """What is there whole is not touched."""
    before = files_of(tiny_artifact.directory)

    again = build_demo(tiny_artifact.directory, "tiny")

    assert files_of(tiny_artifact.directory) == before
    assert again == tiny_artifact


def test_damaged_demo_is_built_anew(tmp_path: Path, tiny_artifact: Artifact) -> None:
    """A changed or missing file is noticed, and the whole is made again."""
    directory = tmp_path / "demo"
    first = build_demo(directory, "tiny")
    weights = directory / "model.safetensors"
    weights.write_bytes(b"\x00" + weights.read_bytes()[1:])
    (directory / "tokenizer.json").unlink()

    second = build_demo(directory, "tiny")

    assert second == first
    assert second.manifest == tiny_artifact.manifest
    assert build_demo(directory, "tiny") == second


def test_other_size_replaces_the_demo(tmp_path: Path) -> None:
    """A demo of another recipe is out of date, not in the way."""
    directory = tmp_path / "demo"
    build_demo(directory, "tiny")

    assert build_demo(directory).artifact_id == DEMO_ID


@pytest.mark.parametrize("manifest", [None, "{", '{"model_id": "sesame/csm-1b"}'])
def test_something_else_is_never_overwritten(tmp_path: Path, manifest: str | None) -> None:
    """A directory with anything but a demo in it is left alone."""
    (tmp_path / "weights").write_text("precious")
    if manifest:
        (tmp_path / "manifest.json").write_text(manifest)

    with pytest.raises(FileExistsError, match="something else"):
        build_demo(tmp_path, "tiny")
    assert (tmp_path / "weights").read_text() == "precious"


def test_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that breaks half-way leaves neither an artifact nor its scraps."""

    def fail() -> str:
        raise OSError("disk full")

    monkeypatch.setattr("gpu_worker.model.demo.train_tokenizer", fail)

    with pytest.raises(OSError, match="disk full"):
        build_demo(tmp_path / "demo", "tiny")
    assert [path.name for path in tmp_path.iterdir()] == [".demo.lock"]


def test_scraps_of_a_killed_builder_are_removed(tmp_path: Path) -> None:
    """What a builder left that was killed half-way is gone after the next build."""
    scraps = tmp_path / ".demo.k1ll3d"
    scraps.mkdir()
    (scraps / "model.safetensors").write_text("half")

    directory = build_demo(tmp_path / "demo", "tiny").directory

    assert sorted(os.listdir(tmp_path)) == [".demo.lock", "demo"]
    assert directory.stat().st_mode & 0o777 == 0o755


def build_in_process(directory: Path, start: object) -> None:
    assert hasattr(start, "wait")
    start.wait()
    build_demo(directory, "tiny")


def test_two_processes_build_at_once(tmp_path: Path) -> None:
    """Builders of one directory at one time all end with the same whole artifact."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    directory = tmp_path / "demo"
    builders = [
        context.Process(target=build_in_process, args=(directory, barrier)) for _ in range(2)
    ]

    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)

    assert [builder.exitcode for builder in builders] == [0, 0]
    assert load_artifact(directory).artifact_id == TINY_ID
    assert sorted(os.listdir(tmp_path)) == [".demo.lock", "demo"]


def test_seeded_values_are_exact() -> None:
    """Values are odd integers times a power of two, so no rounding anywhere can differ."""
    values = seeded("a test", (1000,), 0.1).to(torch.float64)
    unit = 2.0**-11

    odd = values / unit
    assert (odd == odd.round()).all()
    assert (odd.abs() % 2 == 1).all()
    assert odd.abs().max().item() <= 255
    assert 0.05 < values.std().item() < 0.15
