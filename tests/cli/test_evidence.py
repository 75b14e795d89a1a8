"""``psionic-csm evidence`` and ``outcome``: what a person reads, and what a promotion keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest

from cli import evidence, main, outcome
from cli.exits import OK, REFUSED, CommandFailed

WHOLE: dict[str, Any] = {
    "request_id": "r1",
    "state": "ended",
    "admitted_at_unix_ms": 1_700_000_000_123,
    "ended_at_unix_ms": 1_700_000_001_123,
    "kept_until_unix_ms": 1_700_000_601_123,
    "request": {"input_characters": 5, "input_sha256": "sha256:" + "1" * 64},
    "terminal": {
        "finish_reason": "stop",
        "stop_cause": "eos",
        "failure_code": None,
        "artifact_id": "m@sha256:" + "a" * 64,
        "voice_profile_id": "v",
        "first_audio_latency_ms": 90,
        "full_generation_latency_ms": 1000,
        "output_duration_ms": 800,
        "wav_pcm16_digest": "sha256:" + "2" * 64,
        "worker_id": "w1",
        "backend": "cuda",
        "attempt": 1,
        "determinism_class": "c",
        "seed": 7,
    },
    "governance": {
        "manifest_sha256": "sha256:" + "3" * 64,
        "artifact": {"missing_governance_blocks": ["license_review"]},
    },
    "business_outcome": {"outcome": "accepted", "mode": "shadow", "reason": "clear"},
}
WAITING = {
    **WHOLE,
    "state": "waiting",
    "ended_at_unix_ms": None,
    "kept_until_unix_ms": None,
    "request": None,
    "terminal": None,
    "governance": {"manifest_sha256": None, "artifact": None},
    "business_outcome": None,
}


class Gateway:
    """Stands in for a client of a gateway."""

    told: Any = WHOLE
    heard: tuple[str, dict[str, Any]] | None = None

    def __init__(self, url: str, *, api_key: str | None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def evidence(self, request_id: str) -> Any:
        if request_id != "r1":
            raise CommandFailed(REFUSED, "no such request", code="result_not_found")
        return self.told

    def record_outcome(self, request_id: str, outcome: dict[str, Any]) -> Any:
        type(self).heard = request_id, outcome
        return {"request_id": request_id, "business_outcome": outcome}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> type[Gateway]:
    class Own(Gateway):
        pass

    for command in (evidence, outcome):
        monkeypatch.setattr(command, "GatewayClient", Own)
    return Own


@pytest.mark.usefixtures("gateway")
def test_a_person_reads_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    """How it ended, how fast, who spoke, what is missing and what was made of it."""
    assert main.run(["evidence", "r1"]) == OK

    text = capsys.readouterr().out
    for fact in ("r1 (stop, eos)", "90 ms", "w1 on cuda, attempt 1", "license_review"):
        assert fact in text
    assert "accepted (shadow, clear)" in text
    assert "2023-11-14T22:13:20.123+00:00" in text


def test_what_is_not_known_yet_is_left_out(
    gateway: type[Gateway], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a request that waits there is its state and that nothing was said of it."""
    gateway.told = WAITING

    assert main.run(["evidence", "r1"]) == OK

    text = capsys.readouterr().out
    assert "r1 (waiting)" in text
    assert "none recorded" in text
    assert "None" not in text


def test_of_a_failure_there_is_what_was_heard_of_it(
    gateway: type[Gateway], capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that was lost in the middle has a length and no digest."""
    gateway.told = WHOLE | {"terminal": WHOLE["terminal"] | {"wav_pcm16_digest": None}}

    assert main.run(["evidence", "r1"]) == OK

    text = capsys.readouterr().out
    assert "800 ms" in text
    assert "None" not in text


@pytest.mark.usefixtures("gateway")
def test_evidence_is_written_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file holds the gateway's document; with --json it is printed, too."""
    file = tmp_path / "evidence.json"

    assert main.run(["evidence", "r1", "-o", str(file), "--json"]) == OK

    assert json.loads(file.read_text()) == WHOLE == json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("gateway")
def test_nothing_is_written_of_what_is_not_known(tmp_path: Path) -> None:
    """A refusal leaves no file that could be taken for evidence."""
    file = tmp_path / "evidence.json"

    assert main.run(["evidence", "gone", "-o", str(file)]) == REFUSED

    assert not file.exists()


def test_an_outcome_is_sent_as_it_was_given(
    gateway: type[Gateway], capsys: pytest.CaptureFixture[str]
) -> None:
    """The service judges the words; the command only carries them."""
    assert main.run(["outcome", "r1", "rejected", "--shadow", "--reason", "too_slow"]) == OK

    assert gateway.heard == (
        "r1",
        {"outcome": "rejected", "mode": "shadow", "reason": "too_slow", "reference": None},
    )
    assert "rejected (shadow, too_slow)" in capsys.readouterr().out
