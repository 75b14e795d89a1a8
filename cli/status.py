"""``psionic-csm status`` and ``voices``: how a gateway and its workers stand."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from cli import show
from cli.client import GatewayClient


def run(url: str, *, api_key: str | None, as_json: bool) -> None:
    with GatewayClient(url, api_key=api_key) as client:
        health, load = client.health(), client.load()
    if as_json:
        sys.stdout.write(json.dumps({"health": health, "load": load}, indent=2) + "\n")
        return
    runtime = health["runtime"]
    refusal = runtime.get("refusal")
    show.facts(
        [
            ("gateway", url),
            ("runtime", _runtime(runtime)),
            ("refusal", f"{refusal['code']}: {refusal['reason']}" if refusal else None),
            ("artifact", str(health.get("artifact_descriptor", {}).get("artifact_id"))),
            ("waiting", str(load["queue_depth"])),
            ("in flight", f"{load['in_flight_requests']} of {load['capacity_lanes']} lanes"),
            ("estimated wait", f"{load['estimated_wait_ms']} ms"),
            ("oldest waiting", f"{load['oldest_wait_ms']} ms"),
        ]
    )
    workers = load.get("workers") or []
    if not workers:
        show.facts([("workers", "none")])
        return
    show.out().print()
    show.table(WORKER_COLUMNS, [_worker_row(worker) for worker in workers])


WORKER_COLUMNS = ("worker", "state", "backend", "lanes", "busy", "memory", "artifact")


def voices(url: str, *, api_key: str | None, as_json: bool) -> None:
    with GatewayClient(url, api_key=api_key) as client:
        profiles = client.health()["voice_profiles"]
    if as_json:
        sys.stdout.write(json.dumps(profiles, indent=2) + "\n")
        return
    rows = [
        (
            profile["id"],
            profile["display_name"],
            profile["speaker"],
            profile["approval_status"],
            profile["consent_posture"],
        )
        for profile in profiles
    ]
    show.table(("voice", "name", "speaker", "approval", "consent"), rows)


def _runtime(runtime: Mapping[str, Any]) -> str:
    text = f"{runtime['state']} on {runtime['backend']} ({runtime['execution_engine']})"
    fallback = runtime.get("cpu_fallback_reason")
    return f"{text}, CPU FALLBACK: {fallback}" if fallback else text


def _worker_row(worker: Mapping[str, Any]) -> tuple[Any, ...]:
    refusal = worker.get("refusal")
    state = worker.get("state")
    return (
        worker.get("worker_id"),
        f"{state} ({refusal['code']})" if refusal else state,
        worker.get("served_backend"),
        worker.get("lanes"),
        worker.get("in_flight"),
        _megabytes(worker.get("memory_used_bytes")),
        _short(worker.get("artifact_id")),
    )


def _short(artifact_id: str | None) -> str | None:
    """``model@digest`` with as much of the digest as its queue's name has."""
    return None if artifact_id is None else re.sub(r"sha256:(.{12}).*", r"\1", artifact_id)


def _megabytes(count: int | None) -> str | None:
    return None if count is None else f"{count / 2**20:.0f} MB"
