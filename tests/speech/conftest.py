"""The trained demo behind a whole stack, and an ear. Without its weights: skipped, in CI failed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from cli import demo
from demo_voice.hearing import Listeners, listeners
from demo_voice.profiles import FULL
from shared.governance.artifacts import Artifact
from tests.e2e.stacks import CommandLine, Up
from tests.speech.ears import Speaker


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The trained demo, installed as a newcomer's machine has it."""
    if not demo.is_shipped():
        missing = "this tree has no trained weights: make demo-voice, then demo_voice ship"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return demo.put(tmp_path_factory.mktemp("spoken") / "csm-demo")


@pytest.fixture(scope="session")
def stack(spoken: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two workers of two lanes, all settings at their defaults."""
    line = CommandLine(tmp_path_factory.mktemp("speech"), spoken.directory.parent)
    line.environment["PSIONIC_CSM_ARTIFACTS"] = str(spoken.directory)
    with Up(line, "--workers", "2", "--lanes", "2") as up:
        yield up


@pytest.fixture(scope="session")
def speaker(stack: Up) -> Iterator[Speaker]:
    with httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
        yield Speaker(client)


@pytest.fixture(scope="session")
def ears() -> Listeners:
    return listeners(FULL)
