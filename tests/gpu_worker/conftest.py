"""The demo artifacts and an engine, built once, and how each test of the worker begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpu_worker.engine import Engine
from gpu_worker.model.demo import build_demo
from shared.governance.artifacts import Artifact
from tests.gpu_worker.tiny import make_engine
from tests.gpu_worker.worker_stage import RunningWorker

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_worker_outlives_its_test() -> Iterator[None]:
    """A test that fails in the middle must not leave its worker's thread turning."""
    yield
    while RunningWorker.started:
        RunningWorker.started.pop().end()


@pytest.fixture
def in_inference_mode() -> Iterator[None]:
    """As on the engine's thread, for a whole test."""
    with torch.inference_mode():
        yield


@pytest.fixture(scope="session")
def demo_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The seeded demo as the product builds it, some 30 MB. Not to be changed by a test."""
    return build_demo(tmp_path_factory.mktemp("demo") / "csm-tiny")


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The same at the smallest size. Not to be changed by a test."""
    return build_demo(tmp_path_factory.mktemp("tiny") / "csm-tiny-test", "tiny")


@pytest.fixture(scope="module")
def engine() -> Engine:
    """One for all tests that leave it idle: a lane that was used is a new lane."""
    with torch.inference_mode():
        return make_engine()[0]
