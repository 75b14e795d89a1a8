"""The checks for a GPU, rehearsed on a CPU: that they run, and that they can fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import gpu_check, machine
from benchmarks.gpu import invariance, parity, stepping
from benchmarks.gpu.target import WHOLE, Bounds, Check, Target, target_on
from benchmarks.material import material
from benchmarks.rig import Rig, frames_of, open_model
from benchmarks.trace import CHUNK, trace
from gpu_worker.step import FrameStep

LANES = (1, 2, 3)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def target(cache: Path) -> Iterator[Target]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield target_on("cpu", material("tiny", cache)[0], LANES, 32, 4, Bounds())
    torch.set_num_threads(threads)


def test_the_whole_command_runs_on_a_cpu(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check comes to its end, another process included, and each is in the report."""
    monkeypatch.setenv("PSIONIC_CSM_CACHE", str(cache))
    monkeypatch.setattr(machine, "STREAM_BYTES", 1 << 20)
    report = tmp_path / "report.json"
    arguments = ["--device", "cpu", "--size", "tiny", "--frames", "4", "--report", str(report)]
    arguments += ["--lanes", "2", "1", "--bound-rtf", "1000", "--bound-streams", "0"]
    arguments += ["--bound-first-audio-s", "1000", "--bound-prompted-over-plain", "1000"]

    assert gpu_check.main(arguments) == gpu_check.PASSED

    written = json.loads(report.read_text())
    found = {check["name"]: check for check in written["checks"]}
    assert written["passed"] is True
    assert written["device"]["type"] == "cpu"
    assert found["invariance at 2 lanes"]["measured"]["runs"] == 4
    assert found["real-time factor of 1 lane"]["measured"]["runs"][1]["lanes"] == 2
    assert len(found) == 13
    assert "BROKEN" not in capsys.readouterr().out


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No CUDA device is its own exit code, and no report pretends that something was checked."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = tmp_path / "report.json"

    assert gpu_check.main(["--report", str(report)]) == gpu_check.NO_DEVICE
    assert capsys.readouterr().out == "no CUDA device\n"
    assert not report.exists()


@pytest.mark.parametrize(
    ("device", "said"), [("cuda:7", "cuda:7 was asked for"), ("gpu", "not cpu, cuda[:N]")]
)
def test_a_device_that_is_not_there_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str, said: str
) -> None:
    """A number that no device has, or a name that is none, is a line and not a report of faults."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gpu_check, "material", None)

    assert gpu_check.main(["--device", device]) == gpu_check.NO_DEVICE
    assert said in capsys.readouterr().out


def test_a_broken_bound_is_an_exit_code(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check that does not pass fails the command; a check that can't apply does not."""
    checks = [Check("a", "", True, {}), Check("b", "", None, {})]
    monkeypatch.setattr(gpu_check, "run", lambda *_: iter(checks))
    monkeypatch.setattr(gpu_check, "_target", lambda _: target)

    assert gpu_check.main(["--device", "cpu"]) == gpu_check.PASSED
    checks.append(Check("c", "", False, {}))
    assert gpu_check.main(["--device", "cpu"]) == gpu_check.BROKEN


def test_a_check_that_dies_is_broken_and_the_rest_goes_on(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of one check is in the report with its reason, and the others still run."""

    def die(*_: Any) -> Check:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_check, "residence", die)
    for name in ("no_sync", "capture", "flat_memory", "invariance", "pace", "parity"):
        monkeypatch.setattr(gpu_check, name, lambda *_: Check("fine", "", True, {}))

    found = list(gpu_check.run(target, []))

    assert [check.passed for check in found] == [False] + [True] * 6
    assert found[0].reason == "RuntimeError: out of memory"


WAITS: dict[str, Callable[[Tensor], object]] = {
    "a value is read": lambda position: position.max().item(),
    "a branch is taken": lambda position: bool(position.any()),
    "a mask picks": lambda position: position[position > 0],
    "places are listed": lambda position: position.nonzero(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_wait_inside_a_step_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Tensor], object]
) -> None:
    """Whatever makes the host ask the device in the middle of a step breaks the check."""
    quiet = FrameStep.feed

    def loud(self: FrameStep, span: int) -> None:
        wait(self.position)
        quiet(self, span)

    monkeypatch.setattr(FrameStep, "feed", loud)
    monkeypatch.setattr(Rig, "fill", lambda *_: None)
    found = stepping.no_sync(target)

    assert found.passed is False
    assert "Waited" in found.reason


def test_a_recorded_step_that_differs_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that leaves out a part of the step breaks the check, from the frame it shows in."""

    def forgetful(_: stepping.AsItIs, run: Callable[[], None]) -> Callable[[], None]:
        is_feed = "_feed" in str(run)
        return (lambda: None) if is_feed else run

    assert stepping.capture(target).passed is True
    monkeypatch.setattr(stepping.AsItIs, "record", forgetful)
    found = stepping.capture(target)
    assert found.passed is False
    assert found.measured["frames_that_differ"] == [0, 1, 2, 3]


def test_other_weights_are_no_parity(target: Target) -> None:
    """A device that computes something else is found, and where it first shows."""
    opened = open_model(target.artifact, "cpu", WHOLE)
    prompt = opened.text_frames("One.")
    with torch.inference_mode():
        right = trace(opened, prompt, 2)
        again = trace(opened, prompt, 2, right.codes)
        wrong = replace(right, logits=right.logits.clone())
        wrong.logits[1, 3, right.codes[1, 3]] -= 100.0

    same, other = parity.differences([right], [again]), parity.differences([right], [wrong])

    assert same["largest_difference"] == 0
    assert same["first_divergence"] is None
    assert other["codes_that_differ"] == 1
    assert other["largest_difference"] == pytest.approx(100.0)
    place = {"prompt": 0, "frame": 1, "codebook": 3}
    assert place.items() <= other["first_divergence"].items()
    assert other["first_divergence"]["logit_gap"] > 0


def test_a_trace_is_what_the_engine_says(target: Target) -> None:
    """The forced context is that of a greedy request: parity speaks of what is served."""
    opened = open_model(target.artifact, "cpu", WHOLE)
    with torch.inference_mode():
        traced = trace(opened, opened.text_frames("One."), 3)
        rig = Rig(opened, 2, CHUNK)
        rig.submit(replace(rig.generation("One.", max_frames=3), top_k=1))
        codes = [f.codes for _ in range(3) for f in frames_of(rig.tick())]

    assert b"".join(codes) == traced.codes.numpy().astype("<u2").tobytes()


def test_another_answer_in_another_lane_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run that differs is named."""
    real = invariance.probe_digest

    def skewed(rig: Rig, lane: int, neighbours: int, frames: int) -> str:
        return "other" if lane == 2 else real(rig, lane, neighbours, frames)

    monkeypatch.setattr(invariance, "probe_digest", skewed)
    monkeypatch.setattr(invariance, "_in_another_process", lambda _: "failed with 1: no memory")

    found = invariance.invariance(target, [])

    assert found.passed is False
    assert found.measured["runs_that_differ"] == ["another process", "lane 2"]
