"""OpenAI's own Node client against real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.paced import pcm_of
from cli.bench_stack import PacedPlan, paced_stack
from shared.wav import wav_file
from tests.e2e.lossy import lossy
from tests.e2e.stacks import demo_cache, noise
from tests.exposition import samples

__all__ = ["demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.network, pytest.mark.timeout(300)]

PACKAGE = Path(__file__).parent / "openai_node"
KEY = "a-key-of-this-test"
SPOKEN = [pcm_of(7, index) for index in range(5)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, installed from the npm registry. Without Node, or without the registry at home,
    there is nothing to test with.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node and npm are not installed")
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "client.mjs"):
        shutil.copy(PACKAGE / name, directory)
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock")
    done = subprocess.run(
        [npm, "install", *quiet], cwd=directory, capture_output=True, text=True, timeout=200
    )
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"npm can't install OpenAI's client: {done.stderr[-500:]}")
        pytest.skip("npm can't install OpenAI's client")
    return directory


@pytest.fixture(scope="module")
def told(package: Path, demo_cache: Path) -> Iterator[dict[str, Any]]:
    """What the client said of everything that was asked of it, and what the gateway counted."""
    settings = {"PSIONIC_CSM_API_KEYS": KEY}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in noise(demo_cache).items():
            patch.setenv(name, value)
        with (
            paced_stack(PacedPlan(lanes=2, step_ms=20, settings=settings)) as stack,
            lossy(stack.url) as way,
        ):
            way.lose = 1
            health = httpx.get(f"{stack.url}/health", trust_env=False).json()
            voice = health["voice_profiles"][0]["id"]
            arguments = ["node", "client.mjs", stack.url, way.url, KEY, voice]
            done = subprocess.run(
                arguments, cwd=package, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, done.stderr
            metrics = httpx.get(f"{stack.url}/metrics", trust_env=False).content
            yield {
                **json.loads(done.stdout),
                "counts": samples(metrics),
                "asked": way.asked,
            }


def test_it_speaks_whole_and_in_streams(told: dict[str, Any]) -> None:
    """A file, a body that comes in pieces, and OpenAI's events, each with the right samples."""
    assert told["models"] == ["sesame/csm-1b"]
    assert told["wav"] == wav_file(SPOKEN).hex()
    assert told["stream"]["bytes"] == 50 * 3840
    assert told["stream"]["pieces"] > 5
    assert told["events"] == ["speech.audio.delta"] * 5 + ["speech.audio.done"]
    assert told["audio"] == b"".join(SPOKEN).hex()


def test_errors_are_its_own_classes(told: dict[str, Any]) -> None:
    """A caller who catches OpenAI's exceptions catches ours, with our code in them."""
    assert [(each["kind"], each["status"], each["code"]) for each in told["errors"]] == [
        ("BadRequestError", 400, "invalid_request_id"),
        ("AuthenticationError", 401, "unauthorized"),
        ("NotFoundError", 404, "model_unavailable"),
        ("UnprocessableEntityError", 422, "invalid_type"),
        ("InternalServerError", 502, "no_audio_generated"),
        ("APIConnectionTimeoutError", None, None),
    ]


def test_it_obeys_what_is_said_of_retries(told: dict[str, Any]) -> None:
    """A conflict is asked about once; a lost answer again, and it comes from the record."""
    counts, asked = told["counts"], told["asked"]
    conflict = [n for key, n in counts.items() if "request_id_conflict" in key]

    assert told["conflict"]["kind"] == "ConflictError"
    assert sum(conflict) == 1
    assert told["lost"] == {"wav": wav_file(SPOKEN).hex(), "replayed": "true"}
    assert asked == 2
