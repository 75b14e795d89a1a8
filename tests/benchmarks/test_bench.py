"""The command and its measurements on the smallest model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import engine, machine, oracle, speaking
from benchmarks.material import material, recipe_for
from benchmarks.rig import Opened, Rig, frames_of, open_model
from cli import main
from cli.exits import NOT_STARTED, OK, USAGE
from gpu_worker.model.checkpoint import load_state
from shared.governance.artifacts import Artifact


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def artifact(cache: Path) -> Artifact:
    return material("tiny", cache)[0]


@pytest.fixture
def opened(artifact: Artifact) -> Iterator[Opened]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield open_model(artifact, dtype=torch.float32)
    torch.set_num_threads(threads)


def test_the_command_measures_and_writes_its_files(
    artifact: Artifact,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From arguments to tables, JSON and picture, with nothing left out but transformers."""
    monkeypatch.setenv("PSIONIC_CSM_CACHE", str(cache))
    monkeypatch.setattr(machine, "STREAM_BYTES", 1 << 20)
    monkeypatch.setattr(oracle, "is_installed", lambda: False)
    report, picture = tmp_path / "report.json", tmp_path / "plot.svg"
    arguments = ["bench", "engine", "--size", "tiny", "--lanes", "1,2", "--frames", "2"]
    arguments += ["--threads", "1", "--json", str(report), "--plot", str(picture)]

    assert main.run(arguments) == OK

    written = json.loads(report.read_text())
    assert written["subject"]["artifact_id"] == artifact.artifact_id
    assert [each["lanes"] for each in written["lanes"]] == [1, 2]
    assert all(each["frame_s"]["median"] > 0 for each in written["lanes"])
    assert written["join"]["joining_frames"] >= written["join"]["chunks"] == 16
    assert written["loading"]["kept_bytes"] > 1_000_000
    assert 0 <= written["overhead"]["outside_share"] < 1
    assert written["oracle"] == []
    assert picture.read_text().startswith("<svg")
    said = capsys.readouterr().out
    assert engine.NO_ORACLE in said
    assert "first audio" in said


@pytest.mark.parametrize(
    "arguments", [["--size", "huge"], ["--lanes", "0"], ["--lanes", "1,x"], ["--dtype", "int3"]]
)
def test_wrong_usage_measures_nothing(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A size, number or precision that there is none of is refused at once."""
    monkeypatch.setattr(engine, "run", lambda *_: pytest.fail("it measured"))

    assert main.run(["bench", "engine", *arguments]) == USAGE
    assert arguments[0] in capsys.readouterr().err


def test_a_cache_that_can_t_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator learns what was in the way, without a traceback."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PSIONIC_CSM_CACHE", str(blocked))

    assert main.run(["bench", "engine", "--size", "tiny", "--threads", "1"]) == NOT_STARTED
    assert "can't build the weights" in capsys.readouterr().err


def test_the_material_is_built_once(artifact: Artifact, cache: Path) -> None:
    """A second run finds the weights of the first, and another recipe's would not do."""
    again, is_new = material("tiny", cache)

    assert not is_new
    assert again.artifact_id == artifact.artifact_id
    assert recipe_for("full").version != recipe_for("demo").version


def test_the_oracle_has_our_weights(opened: Opened) -> None:
    """Greedy codes of transformers' generate loop are ours: the same work is compared."""
    config = opened.checkpoint.config
    built = oracle.build_oracle(config, load_state(opened.artifact, config), torch.float32)
    rig = Rig(opened, 1, 32)
    greedy = replace(rig.generation("Compare.", max_frames=3), top_k=1)
    ids = opened.checkpoint.tokenizer.encode(0, "Compare.")

    options = {"do_sample": False, "temperature": None, "top_k": None}
    theirs = oracle.generate(built, ids, 1, 3, **options)[0]
    rig.submit(greedy)
    ours = [np.frombuffer(frame.codes, "<u2") for _ in range(3) for frame in frames_of(rig.tick())]

    assert np.array_equal(np.stack(ours), theirs.numpy())
    assert len(oracle.frames(built, ids, 2, 2)) == 2


def test_a_long_text_takes_as_many_positions_as_asked(opened: Opened) -> None:
    """The newcomer's prompt in a join is as long as its table says."""
    found = len(opened.text_frames(opened.text(500)))

    assert 500 <= found <= 503


def test_a_join_puts_one_chunk_between_two_frames(opened: Opened) -> None:
    """The others speak at least once per chunk, and the newcomer speaks in the end."""
    join = speaking.joining(Rig(opened, 3, 64), 2)

    assert join.chunks == 8
    assert join.joining_frames >= 8
    assert join.longest_s >= join.gaps_s.median


def test_lanes_are_empty_after_each_measurement(opened: Opened) -> None:
    """One measurement leaves nothing behind that would slow the next."""
    rig = Rig(opened, 2, 32)
    speaking.first_audio(rig, 1)
    speaking.prefill(rig, 1)

    assert rig.engine.is_idle
