"""``psionic-csm speak``: what is told, when, and to whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from cli import exits, main, speak
from gpu_worker.model.demo import build_demo
from shared.digests import sha256_hex
from shared.wav import FRAME_BYTES, wav_file

WAV = wav_file(bytes(FRAME_BYTES))
HEADERS = {
    "x-psionic-request-id": "r",
    "x-psionic-csm-artifact-id": "a@sha256:0",
    "x-psionic-csm-voice-profile-id": "v",
    "x-psionic-served-backend": "cpu",
    "x-psionic-csm-generated-frame-count": "1",
    "x-psionic-output-duration-ms": "80",
    "x-psionic-csm-finish-reason": "length",
    "x-psionic-full-generation-latency-ms": "34",
    "x-psionic-csm-wav-pcm16-digest": sha256_hex(WAV),
    "x-psionic-csm-frames-sha256": sha256_hex(b""),
}
LIMITS = {"note": "It knows two words.", "vocabulary": ["hello", "two"]}
Output = pytest.CaptureFixture[str]


class Gateway:
    """Stands in for a client of a gateway; notes what a person has read when it is asked."""

    def __init__(self, limits: Any, read: Callable[[], str]) -> None:
        self._limits = limits
        self._read = read
        self.read_before = ""
        self.asked: dict[str, Any] = {}

    def __call__(self, url: str, *, api_key: str | None) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def health(self) -> dict[str, Any]:
        return {"status": "ok"} if self._limits is None else {"speech_limits": self._limits}

    def speak(self, body: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        self.read_before += self._read()
        self.asked = body
        return WAV, HEADERS


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> Callable[[Any], Gateway]:
    """A gateway whose artifact states these limits stands where a client would reach one."""

    def stand(limits: Any) -> Gateway:
        gateway = Gateway(limits, lambda: capsys.readouterr().err)
        monkeypatch.setattr(speak, "GatewayClient", gateway)
        return gateway

    return stand


def spoken(text: str, output: Path, *options: str) -> int:
    return main.run(["speak", text, "--url", "http://h", "-o", str(output), *options])


def test_limits_are_told_before_the_wait(
    served: Callable[[Any], Gateway], tmp_path: Path, capsys: Output
) -> None:
    """The artifact's note and the words it doesn't know are read before the text is sent."""
    gateway = served(LIMITS)

    assert spoken("Hello, zebra.", tmp_path / "x.wav") == exits.OK

    assert "It knows two words." in gateway.read_before
    assert "zebra" in gateway.read_before
    assert capsys.readouterr().err == ""


def test_limits_are_a_field_of_the_json(
    served: Callable[[Any], Gateway], tmp_path: Path, capsys: Output
) -> None:
    """A program finds the note and the unknown words in the document; a person reads them too."""
    gateway = served(LIMITS)

    assert spoken("Hello, zebra, zebra.", tmp_path / "x.wav", "--json") == exits.OK

    document = json.loads(capsys.readouterr().out)
    assert document["speech_limits"] == {
        "note": "It knows two words.",
        "unknown_words": ["zebra"],
    }
    assert "It knows two words." in gateway.read_before


def test_an_artifact_without_limits_is_not_spoken_of(
    served: Callable[[Any], Gateway], tmp_path: Path, capsys: Output
) -> None:
    """CSM-1B, and a gateway of before, state nothing: the field is null, and nobody is warned."""
    gateway = served(None)

    assert spoken("Hello, zebra.", tmp_path / "x.wav", "--json") == exits.OK

    assert json.loads(capsys.readouterr().out)["speech_limits"] is None
    assert "note" not in gateway.read_before


def test_a_warning_is_of_the_words_that_are_spoken(
    served: Callable[[Any], Gateway], tmp_path: Path
) -> None:
    """Spelled out, a text has other words than it is written with: those may be unknown."""
    gateway = served({"note": "Few words.", "vocabulary": ["at", "three", "p", "m"]})

    spoken("At 3:05 pm", tmp_path / "x.wav")
    spoken("At 3:05 pm", tmp_path / "x.wav", "--spell-out")

    assert "3, 05, pm" in gateway.read_before
    assert "oh, five" in gateway.read_before


def test_with_a_stack_of_its_own_limits_are_told_before_it_starts(
    served: Callable[[Any], Gateway],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    """They are in the artifact's manifest: nobody waits for a model to load to hear of them."""
    artifact = build_demo(tmp_path / "artifact", "tiny").directory
    manifest = json.loads((artifact / "manifest.json").read_text())
    (artifact / "manifest.json").write_text(json.dumps({**manifest, "speech_limits": LIMITS}))
    served(None)
    read: list[str] = []

    class Stack:
        url = "http://h"

        def __init__(self, *_: object) -> None:
            read.append(capsys.readouterr().err)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def wait_until_ready(self, *_: object, **__: object) -> None:
            pass

    monkeypatch.setattr(speak, "Stack", Stack)

    arguments = ["--artifact", str(artifact), "-o", str(tmp_path / "x.wav")]
    assert main.run(["speak", "Zebra.", *arguments]) == exits.OK

    assert "It knows two words." in read[0]
    assert "zebra" in read[0]


@pytest.mark.parametrize(
    ("text", "code"),
    [(" ", "empty_input"), ("a" * 4097, "input_too_long"), ("x\a", "invalid_input_text")],
)
def test_a_text_that_can_t_be_spoken_starts_no_stack(
    text: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """It is refused with the gateway's own code, and nobody waits for a model to load for it."""

    def start(*_: object) -> None:
        raise AssertionError("a stack was started")

    monkeypatch.setattr(speak, "Stack", start)

    assert main.run(["speak", text, "-o", str(tmp_path / "x.wav")]) == exits.REFUSED

    assert f"error: {code}" in capsys.readouterr().err


def test_another_artifact_is_asked_for_by_its_id(
    served: Callable[[Any], Gateway], tmp_path: Path
) -> None:
    """The id goes along, and the limits of the default artifact are not told of that one."""
    gateway = served(LIMITS)

    assert spoken("Zebra.", tmp_path / "x.wav", "--artifact-id", "b@sha256:1") == exits.OK

    assert gateway.asked["artifact_id"] == "b@sha256:1"
    assert "note" not in gateway.read_before


def test_an_artifact_s_id_needs_a_gateway(tmp_path: Path, capsys: Output) -> None:
    """A stack of its own serves one artifact, which is named by its directory."""
    status = main.run(["speak", "Hi.", "-o", str(tmp_path / "x.wav"), "--artifact-id", "b"])

    assert status == exits.USAGE
    assert "--artifact-id is for --url" in capsys.readouterr().err
