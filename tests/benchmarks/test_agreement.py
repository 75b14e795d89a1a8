"""How far a quantized artifact agrees with its parent, and how fast it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import engine, machine, oracle, products
from benchmarks.agreement import TEXTS, agreement, compared, prompts_of
from benchmarks.arithmetic import weight_elements_per_frame
from benchmarks.records import GIVEN
from benchmarks.rig import open_model
from benchmarks.trace import Trace
from cli import main
from cli.exits import OK, USAGE
from gpu_worker.model.checkpoint import load_config
from gpu_worker.model.demo import build_demo
from gpu_worker.model.layouts import torchtune_shapes
from gpu_worker.model.products import multiplies_int8
from gpu_worker.model.quantize import quantize_artifact
from shared.governance.artifacts import Artifact


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build_demo(tmp_path_factory.mktemp("parent") / "tiny", "tiny")


@pytest.fixture(scope="module")
def child(parent: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return quantize_artifact(parent.directory, tmp_path_factory.mktemp("child") / "int8")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_an_artifact_agrees_with_itself(parent: Artifact) -> None:
    """Twenty prompts, every id and frame the same, no logit apart."""
    found = agreement(parent, parent, 1, torch.float32, lambda _: None)

    assert (found.prompts, found.codes) == (2 * len(TEXTS), 640)
    assert (found.same_ids, found.same_first_ids, found.largest_difference) == (1.0, 1.0, 0.0)
    assert found.frames_alike == (1,) * 20


def test_prompts_leave_room_for_the_speech(parent: Artifact) -> None:
    """Only prompts are taken that fit the model's window together with what is spoken."""
    opened = open_model(parent, dtype=torch.float32)

    assert len(prompts_of(opened, 12)) == 20
    crowded = [len(prompt) for prompt in prompts_of(opened, 2048 - 20)]
    assert 0 < len(crowded) < 20
    assert max(crowded) < 20


def test_what_agrees_is_counted() -> None:
    """Ids on the parent's words, and whole frames of free speech up to the first that differs."""
    logits = torch.eye(8)[torch.arange(2 * 32) % 7].view(2, 32, 8)
    wanted = Trace(logits.argmax(dim=-1), logits)
    other = logits.clone()
    other[0, 0], other[1, 4:8] = torch.eye(8)[7], 2 * torch.eye(8)[7]
    said = wanted.codes.clone()
    said[1, 31] = 7

    found = compared(
        [wanted, wanted], [Trace(wanted.codes, other)] * 2, [wanted, Trace(said, other)]
    )

    assert found.codes == 128
    assert found.same_ids == pytest.approx(1 - 10 / 128)
    assert found.same_first_ids == 0.5
    assert (found.largest_difference, found.largest_logit) == (2.0, 1.0)
    assert (found.frames_alike, found.median_frames_alike) == ((2, 1), 1.5)


def test_the_command_compares(
    parent: Artifact, child: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    """int8 weights keep most ids of the tiny model and not all."""
    arguments = ["artifacts", "compare", str(parent.directory), str(child.directory)]

    assert main.run([*arguments, "--frames", "2", "--json"]) == OK

    found = json.loads(capsys.readouterr().out)
    assert found["parent"] == parent.artifact_id
    assert found["artifact"] == child.artifact_id
    assert found["frames"] == 2
    assert 0.5 < found["same_ids"] < 1


@pytest.mark.parametrize("arguments", [["--dtype", "int3"], []])
def test_a_comparison_without_sense_is_refused(
    arguments: list[str], parent: Artifact, child: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another precision than there are, and two that are not parent and child."""
    pair = [parent, child] if arguments else [child, parent]
    directories = [str(each.directory) for each in pair]

    assert main.run(["artifacts", "compare", *directories, *arguments]) == USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not multiplies_int8(torch.device("cpu")), reason="no int8 product here")
def test_the_bench_measures_a_given_artifact(
    child: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An int8 artifact is read at a byte per weight, under its own id, and judged by no bound."""
    monkeypatch.setattr(machine, "STREAM_BYTES", 1 << 20)
    monkeypatch.setattr(oracle, "is_installed", lambda: False)
    plan = engine.Plan("full", child.directory, (1,), 2, 1, 512, "float32", tmp_path)
    shapes = torchtune_shapes(load_config(child))

    report = engine.run(plan, lambda _: None)

    subject = report.subject
    assert (subject.size, subject.artifact_id) == (GIVEN, child.artifact_id)
    assert subject.dtype == "float32, matrices int8"
    assert subject.weight_bytes_per_frame == weight_elements_per_frame(shapes, 32)
    assert not subject.is_seeded
    assert all(bound.met is None for bound in report.bounds)


@pytest.mark.skipif(not multiplies_int8(torch.device("cpu")), reason="no int8 product here")
def test_three_ways_to_multiply_take_turns() -> None:
    """Each is timed as often on the same rows, and they are ways to the same product."""
    weight, rows = torch.randn(64, 96) * 0.02, torch.randn(3, 96).bfloat16()

    found = products.compare([weight], 3, 2)

    assert [each.count for each in found.values()] == [2, 2, 2]
    expected = rows.float() @ weight.T
    error = products.weight_only(weight)(rows).float() - expected
    assert error.norm() < 0.02 * expected.norm()
