"""The command's arguments, messages and exit codes, and how little it loads."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import demo, exits, main, speak, status
from cli.exits import NOT_GENUINE, NOT_STARTED, REFUSED, UNREACHABLE, USAGE, CommandFailed
from cli.signals import Interrupted
from cli.speak import Wish
from cli.streams import OutputGone
from shared.environment import SettingsError
from shared.governance.locations import csm_1b_dir
from tests.gateway.artifacts import write_artifact


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> list[Wish]:
    heard: list[Wish] = []
    monkeypatch.setattr(speak, "run", heard.append)
    return heard


@pytest.mark.parametrize(
    "text", ['It\'s $5 "net", `x` \\ & more', "—", "-x looks like an option", ""]
)
def test_a_text_arrives_as_typed(wishes: list[Wish], text: str) -> None:
    """Quotes, dollars, dashes and other letters reach the request unchanged."""
    assert main.run(["speak", "--", text]) == exits.OK

    assert wishes[0].text == text


def test_a_dash_reads_standard_input(wishes: list[Wish], monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` takes the text from a pipe, without its last line end."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))

    main.run(["speak", "-"])

    assert wishes[0].text == "piped"


def test_only_what_was_asked_for_is_in_the_request() -> None:
    """Defaults are the service's: an option that was not given is not sent."""
    bare = Wish("hi", Path("x.wav"), request_id="r").body()
    full = Wish("hi", Path("x.wav"), request_id="r", voice="v", seed=0, temperature=0.0).body()

    assert bare == {"request_id": "r", "input": "hi"}
    assert full["voice_profile_id"] == "v"
    assert full["seed"] == 0
    spelled = Wish("hi", Path("x.wav"), spell_out=True).body()
    assert spelled["text_normalization"] == "spoken_en"
    assert full["psionic_csm"] == {"temperature": 0.0}


def test_each_request_has_an_id_of_its_own() -> None:
    """Two wishes without an id never share one: a retry is something one asks for."""
    wish = Wish("hi", Path("x.wav"))

    assert wish.body()["request_id"] != wish.body()["request_id"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["speak"],
        ["speak", "a", "b"],
        ["speak", "a", "--seed", "x"],
        ["speak", "a", "--url", "http://h", "--artifact", "d"],
        ["up", "--workers", "0"],
        ["up", "--port", "65536"],
        ["cancel"],
        ["cancel", "--request-id", "a", "--cancellation-id", "b"],
        ["nonsense"],
        ["status", "--url", "ftp://x"],
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments that make no sense end with 2 and a word why, on standard error."""
    assert main.run(arguments) == USAGE

    said = capsys.readouterr()
    assert said.out == ""
    assert "rror" in said.err


def test_an_absent_gateway_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    """No gateway: one line that names it, a hint, no traceback."""
    assert main.run(["status", "--url", "http://127.0.0.1:1"]) == UNREACHABLE

    said = capsys.readouterr().err
    assert said.startswith("error: can't reach a gateway at http://127.0.0.1:1")
    assert "hint: " in said
    assert "Traceback" not in said


def test_a_missing_artifact_is_exit_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without a manifest is named with its code before anything starts."""
    assert main.run(["up", "--artifact", str(tmp_path)]) == NOT_STARTED
    assert "artifact_unavailable" in capsys.readouterr().err


def test_a_bad_setting_stops_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting out of range is named, in one line."""
    monkeypatch.setenv("PSIONIC_CSM_PORT", "many")

    assert main.run(["up"]) == NOT_STARTED
    assert capsys.readouterr().err.startswith("error: PSIONIC_CSM_PORT: takes")


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (CommandFailed(REFUSED, "no"), 1),
        (Interrupted(2), 130),
        (Interrupted(15), 143),
        (OutputGone(), 141),
        (OSError(28, "No space left on device", "/tmp/x"), 4),
        (SettingsError("PSIONIC_CSM_LANES", "a number"), 4),
    ],
)
def test_every_end_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
) -> None:
    """A failure and a signal end the command each with its own code."""

    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(status, "run", fail)

    assert main.run(["status"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_help_and_status_load_neither_torch_nor_the_worker() -> None:
    """The everyday commands stay quick: what is heavy is imported only where it is used."""
    program = """
import sys
from cli.main import run
run(["--help"])
light = set(sys.modules)
run(["status", "--url", "http://127.0.0.1:1"])
heavy = {"torch", "moshi", "numpy", "gpu_worker", "gateway", "starlette", "redis", "rq"}
import json
sys.stderr.write("\\n" + json.dumps([sorted(light & (heavy | {"httpx", "pydantic"})),
                                     sorted(set(sys.modules) & heavy)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stderr.splitlines()[-1]) == [[], []]


def test_the_known_artifacts_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configured folder without an artifact is listed with what is wrong with it."""
    monkeypatch.setenv("PSIONIC_CSM_CACHE", str(tmp_path))
    monkeypatch.setenv("PSIONIC_CSM_ARTIFACTS", str(tmp_path / "gone"))

    assert main.run(["artifacts", "list"]) == exits.OK
    assert "artifact_unavailable" in capsys.readouterr().out


def test_what_was_left_half_done_is_no_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build that was killed after its manifest leaves a folder that isn't listed."""
    left = tmp_path / "artifacts" / ".csm-demo.abc"
    left.mkdir(parents=True)
    for name in ("manifest.json", "voices.json"):
        shutil.copy(csm_1b_dir() / name, left)
    monkeypatch.setenv("PSIONIC_CSM_CACHE", str(tmp_path))

    assert main.run(["artifacts", "list", "--json"]) == exits.OK
    assert str(left) not in capsys.readouterr().out


def test_missing_files_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine without CSM-1B's files, verify lists them and says how each is had."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HF_HOME", raising=False)

    assert main.run(["artifacts", "verify", "csm-1b", "--json"]) == NOT_GENUINE

    said = capsys.readouterr()
    states = {row["file"]: row["state"] for row in json.loads(said.out)}
    assert states["voices.json"] == "as stated"
    assert states["model.safetensors"] == "No such file or directory"
    assert "hf download sesame/csm-1b model.safetensors" in said.err
    assert "sesame/csm-1b: files are missing" in said.err


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_verify_finds_voices_that_are_not_the_artifact_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """voices.json is a file as the others are: exit code 5, and a hint that mends it."""
    directory = write_artifact(tmp_path / "artifact").directory
    if damage == "missing":
        (directory / "voices.json").unlink()
    else:
        (directory / "voices.json").write_text("{}")

    assert main.run(["artifacts", "verify", str(directory)]) == NOT_GENUINE

    said = capsys.readouterr().err
    assert f"{directory}: voices.json" in said
    assert "put back the voices.json" in said
    assert "artifacts verify" not in said


def test_verify_of_no_artifact_is_no_verdict(tmp_path: Path) -> None:
    """Without a manifest there is nothing to compare with."""
    assert main.run(["artifacts", "verify", str(tmp_path)]) == exits.NOT_STARTED


def test_a_changed_recipe_is_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes how the seeded demo is built gets it built anew."""
    before = demo.recipe_digest()
    assert before == demo.recipe_digest()

    folder = tmp_path / demo.RECIPE
    folder.mkdir(parents=True)
    (folder / "demo.py").write_text("changed")
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "cli" / "demo.py"))

    assert demo.recipe_digest() != before
