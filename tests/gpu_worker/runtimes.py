"""Runtimes that a test starts, on an artifact that it may damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_worker.runtime import Runtime
from shared.governance.artifacts import Artifact
from shared.messages import LOADING
from shared.settings import WorkerSettings
from tests.conftest import wait_until

WAIT_S = 60.0
Start = Callable[..., Runtime]


@pytest.fixture
def start(tiny_artifact: Artifact) -> Iterator[Start]:
    """Starts runtimes on the tiny artifact, or on another directory, and closes them."""
    started: list[Runtime] = []

    def start_one(directory: Path = tiny_artifact.directory, **env: str) -> Runtime:
        settings = WorkerSettings.from_env({"PSIONIC_CSM_TORCH_THREADS": "1", **env})
        runtime = Runtime(settings, directory)
        started.append(runtime)
        runtime.start()
        return runtime

    yield start_one
    for runtime in started:
        runtime.close(WAIT_S)


@pytest.fixture
def copied(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    """The tiny artifact in a directory that the test may damage."""
    return Path(shutil.copytree(tiny_artifact.directory, tmp_path / "artifact"))


def settled(runtime: Runtime) -> Runtime:
    """Once loading has come to an end, ready or not."""
    wait_until(lambda: runtime.facts.state != LOADING, WAIT_S)
    return runtime
