"""Every stage, from words to a report, at the size that only proves it: needs flite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from demo_voice.__main__ import main
from demo_voice.paths import Workshop
from demo_voice.profiles import SMOKE
from demo_voice.speech import read_spoken, read_waves
from demo_voice.words import words_of
from gpu_worker.backend import CPU
from gpu_worker.loading import load
from shared.governance.artifacts import load_artifact
from shared.settings import WorkerSettings

pytestmark = [
    pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    threads = torch.get_num_threads()
    work = tmp_path_factory.mktemp("voice")
    assert main(["export", "--profile", "smoke", "--work", str(work)]) == 0
    yield Workshop(work, SMOKE)
    torch.set_num_threads(threads)


def test_the_corpus_is_spoken_on_the_grid(workshop: Workshop) -> None:
    """Whole frames, a word for each, loud enough; the slow style takes longer."""
    frames: dict[int, list[float]] = {0: [], 1: []}
    for each, wave in read_waves(workshop.speech):
        assert len(wave) == each.frames * 1920
        assert len(each.words) == each.frames
        assert len(each.phones) == 4 * each.frames
        assert each.words[-1] == len(words_of(each.text))
        assert int(np.abs(wave).max()) > 2_000
        frames[each.style].append(each.frames / len(words_of(each.text)))
    prompts = [each for each in read_spoken(workshop.speech) if each.kind == "prompt"]

    assert [each.style for each in prompts] == [0, 1]
    assert prompts[1].frames > 1.1 * prompts[0].frames


def test_the_artifact_loads_and_warms(workshop: Workshop) -> None:
    """The exported files pass the worker's own loader, digests, voices, both prompts and all."""
    artifact = load_artifact(workshop.artifact)

    loaded = load(WorkerSettings.from_env({"PSIONIC_CSM_LANES": "1"}), workshop.artifact, CPU)

    assert loaded.lanes == 1
    assert [profile.has_prompt for profile in artifact.voices.profiles] == [True, True]
    assert artifact.manifest.artifact_id.startswith(f"{SMOKE.model_id}@sha256:")
    assert artifact.manifest.quantization == "none_float16_safetensors"


def test_a_second_run_makes_nothing_again(workshop: Workshop) -> None:
    """What is done stays as it is, and the weights that come out are the same."""
    times = {
        path: path.stat().st_mtime_ns
        for folder in (workshop.speech, workshop.codec, workshop.model)
        for path in folder.iterdir()
        if path.suffix in (".pt", ".npy")
    }
    before = load_artifact(workshop.artifact).manifest.artifact_id

    assert main(["export", "--profile", "smoke", "--work", str(workshop.root)]) == 0

    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    assert load_artifact(workshop.artifact).manifest.artifact_id == before


def test_the_artifact_is_heard(workshop: Workshop) -> None:
    """The report has the yardsticks and both voices; flite itself is mostly understood."""
    arguments = [
        "evaluate",
        "--profile",
        "smoke",
        "--work",
        str(workshop.root),
        "--on",
        "benchmark",
    ]

    assert main(arguments) == 0

    report = json.loads((workshop.report / "benchmark.json").read_text())
    assert set(report["heard"]) == {"flite", "flat", "codec"}
    assert len(report["voices"]) == 2
    assert report["heard"]["flite"]["bigram"]["by_ear"] < 0.5
    for voice in report["voices"].values():
        assert {"uniform", "bigram", "stopped", "length_near"} <= set(voice)


def test_work_is_a_folder_of_the_users(tmp_path: Path) -> None:
    """Unknown stages and profiles are refused by name before anything is written."""
    with pytest.raises(SystemExit):
        main(["everything", "--work", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
