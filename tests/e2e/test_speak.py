"""``psionic-csm speak`` from nothing to a verified file, over real processes."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import wave
from pathlib import Path

import pytest

from cli.exits import NOT_STARTED, REFUSED
from shared.governance.locations import demo_artifact_dir, seeded_artifact_dir
from shared.wav import FRAME_SAMPLES
from tests.e2e.stacks import WAIT_S, CommandLine, command_line, demo_cache

__all__ = ["command_line", "demo_cache"]

pytestmark = pytest.mark.e2e


def test_a_text_becomes_a_file_that_is_what_its_digests_say(
    command_line: CommandLine, tmp_path: Path
) -> None:
    """One command starts everything, speaks, verifies, stops, and leaves only the file.

    Two at once each bring a stack of their own, and the same seed gives them the same audio.
    """
    outputs = [tmp_path / "one.wav", tmp_path / "other.wav"]
    arguments = ("speak", 'It\'s $5, "net".', "--seed", "7", "--json", "-o")
    running = [command_line.start(*arguments, str(output)) for output in outputs]
    said = [process.communicate(timeout=WAIT_S) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    facts, other = (json.loads(out) for out, _ in said)

    digest = hashlib.sha256(outputs[0].read_bytes()).hexdigest()
    assert facts["wav_digest"] == f"sha256:{digest}"
    assert "demo" in facts["artifact_id"]
    assert facts["seed"] == 7
    assert facts["first_audio_latency_ms"] <= facts["full_generation_latency_ms"]
    with wave.open(str(outputs[0])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.getnframes() == facts["frames"] * FRAME_SAMPLES
    assert facts["duration_ms"] == facts["frames"] * 80
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert facts["worker_id"] != other["worker_id"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.wav", "other.wav", "tmp"]
    assert command_line.leftovers() == []


def test_a_refused_text_leaves_nothing_behind(command_line: CommandLine, tmp_path: Path) -> None:
    """A refusal prints its code, ends with 1, writes no file and stops the stack."""
    output = tmp_path / "out.wav"

    code, out, err = command_line.run("speak", "more " * 100, "-o", str(output))

    assert code == REFUSED
    assert "error: input_exceeds_budget" in err
    assert "Traceback" not in out + err
    assert not output.exists()
    assert command_line.leftovers() == []


def test_a_damaged_artifact_is_named_and_nothing_hangs(
    command_line: CommandLine, tmp_path: Path, demo_cache: Path
) -> None:
    """When the worker can't load, its code and reason come back instead of a wait."""
    damaged = tmp_path / "damaged"
    shutil.copytree(seeded_artifact_dir(demo_cache), damaged)
    with (damaged / "model.safetensors").open("r+b") as file:
        file.truncate(1_000_000)
    command_line.environment.pop("PSIONIC_CSM_ARTIFACTS")

    code, _, err = command_line.run("speak", "Hello.", "--artifact", str(damaged))

    assert code == NOT_STARTED
    assert "error: csm_" in err
    assert f"`psionic-csm artifacts verify {damaged}`" in err
    assert command_line.leftovers() == []


def test_a_damaged_demo_is_put_right(command_line: CommandLine, tmp_path: Path) -> None:
    """What went bad in the user's cache is put right by the command that needs it."""
    cache = tmp_path / "cache"
    command_line.environment["PSIONIC_CSM_CACHE"] = str(cache)
    del command_line.environment["PSIONIC_CSM_ARTIFACTS"]
    made = command_line.json("artifacts", "build-demo")
    assert Path(made["directory"]) == demo_artifact_dir(cache)
    weights = demo_artifact_dir(cache) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + b"\0\1\2\3")

    code, _, err = command_line.run("speak", "Hello.", "-o", str(tmp_path / "out.wav"))

    assert code == 0, err
    assert "ing the demo artifact again" in err
    assert "note" in err
    assert weights.read_bytes() == whole


def test_ctrl_c_during_the_start_leaves_nothing(command_line: CommandLine, tmp_path: Path) -> None:
    """A signal while the model loads ends the command soon, with everything it had started."""
    process = command_line.start("speak", "Hello.", "-o", str(tmp_path / "out.wav"))
    assert process.stderr is not None
    for line in process.stderr:
        if "loading" in line:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "out.wav was not written" in said
    assert command_line.leftovers() == []
