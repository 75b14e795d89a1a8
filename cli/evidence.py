"""``psionic-csm evidence``: what is known of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli import audio_file, show
from cli.client import GatewayClient, understood
from cli.outcome import in_words


def run(
    url: str, request_id: str, *, api_key: str | None, output: Path | None, as_json: bool
) -> None:
    """Shows the evidence of a request, or writes it to a file. Raises :class:`CommandFailed`."""
    with GatewayClient(url, api_key=api_key) as client:
        evidence = client.evidence(request_id)
    if output is not None:
        audio_file.write(output, json.dumps(evidence, indent=2).encode() + b"\n")
    if as_json:
        show.document(evidence)
    elif output is None:
        with understood():
            facts = _facts(evidence)
        show.facts(facts)


def _facts(evidence: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    asked, end = evidence["request"] or {}, evidence["terminal"] or {}
    governance = evidence["governance"]
    artifact = governance["artifact"] or {}
    return [
        ("request", f"{evidence['request_id']} ({_state(evidence)})"),
        ("admitted", _time(evidence["admitted_at_unix_ms"])),
        ("ended", _time(evidence["ended_at_unix_ms"])),
        (
            "text",
            f"{asked['input_characters']} characters, {asked['input_sha256']}" if asked else None,
        ),
        ("artifact", end.get("artifact_id") or artifact.get("artifact_id")),
        ("voice", end.get("voice_profile_id")),
        ("first audio", _ms(end.get("first_audio_latency_ms"))),
        ("whole", _ms(end.get("full_generation_latency_ms"))),
        ("audio", _audio(end)),
        ("spoken by", _speaker(end)),
        ("class", end.get("determinism_class")),
        ("seed", str(end["seed"]) if end else None),
        ("manifest", governance["manifest_sha256"]),
        ("missing", ", ".join(artifact.get("missing_governance_blocks", ())) or None),
        ("outcome", in_words(evidence["business_outcome"])),
        ("kept until", _time(evidence["kept_until_unix_ms"])),
    ]


def _state(evidence: Mapping[str, Any]) -> str:
    end = evidence["terminal"]
    if end is None:
        return str(evidence["state"])
    parts = (end["finish_reason"], end["stop_cause"], end["failure_code"])
    return ", ".join(str(part) for part in parts if part)


def _audio(end: Mapping[str, Any]) -> str | None:
    """Of a failure there may be audio that was heard, and no digest of it."""
    if not end:
        return None
    parts = (f"{end['output_duration_ms']} ms", end["wav_pcm16_digest"])
    return ", ".join(part for part in parts if part)


def _speaker(end: Mapping[str, Any]) -> str | None:
    if not end.get("worker_id"):
        return None
    return f"{end['worker_id']} on {end['backend']}, attempt {end['attempt']}"


def _time(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _ms(count: int | None) -> str | None:
    return None if count is None else f"{count} ms"
