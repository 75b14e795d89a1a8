"""``psionic-csm status``: how a gateway and its workers stand, in 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cli import remedies, show
from cli.client import GatewayClient

WIDTH: Final = 78
LABEL: Final = 12
WORKER_COLUMNS: Final = ("state", "on", "busy", "memory", "heard", "serves", "worker")
QUEUE_COLUMNS: Final = ("waiting", "oldest", "estimate", "running", "lanes", "artifact")


def run(url: str, *, api_key: str | None, as_json: bool) -> None:
    """Shows what the gateway says of itself, then its load. Raises :class:`CommandFailed`."""
    with GatewayClient(url, api_key=api_key) as client:
        health = client.health()
        if not as_json:
            show.facts(_gateway(url, health), width=LABEL)
            _explain(health["runtime"].get("refusal"))
        load = client.load()
    if as_json:
        show.document({"health": health, "load": load})
        return
    show.facts(_load(load), width=LABEL)
    if len(load["artifacts"]) > 1:
        show.out().print()
        show.table(QUEUE_COLUMNS, [_queue_row(queue) for queue in load["artifacts"]])
    if load["workers"]:
        show.out().print()
        show.table(WORKER_COLUMNS, [_worker_row(worker) for worker in load["workers"]])
    for worker in load["workers"]:
        for line in _trouble(worker):
            show.out().print(line, markup=False)


def _gateway(url: str, health: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    runtime = health["runtime"]
    artifact = health.get("artifact_descriptor", {}).get("artifact_id")
    return [
        ("gateway", f"{url} ({health['status']})"),
        ("answers to", str(health["model"])),
        ("artifact", _short(artifact)),
        ("runtime", f"{runtime['state']} on {runtime['backend']} ({runtime['execution_engine']})"),
        ("CPU FALLBACK", runtime.get("cpu_fallback_reason")),
    ]


def _explain(refusal: Mapping[str, Any] | None) -> None:
    """A refusal, and what can be done about it."""
    if refusal is None:
        return
    lines = [f"refusal: {refusal['code']}: {refusal['reason']}"]
    if remedy := remedies.of_caller(str(refusal["code"])):
        lines.append(f"hint: {remedy}")
    for line in lines:
        for part in _wrapped(line):
            show.out().print(part, markup=False)


def _load(load: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    states = Counter(str(worker.get("state")) for worker in load["workers"])
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return [
        ("waiting", f"{load['queue_depth']}, the oldest for {load['oldest_wait_ms']} ms"),
        ("next wait", _estimate(load)),
        ("in flight", f"{load['in_flight_requests']} of {load['capacity_lanes']} lanes"),
        ("refused", f"{load['refused_recently']} in the last minute, by this gateway"),
        ("", ", ".join(f"{n} {code}" for code, n in load["refused_codes"].items()) or None),
        ("redis", _memory(load["redis_memory_ratio"])),
        ("workers", said or "none"),
    ]


def _estimate(load: Mapping[str, Any]) -> str:
    error_ms = load.get("estimated_wait_error_ms")
    off = f" (such estimates are off by {error_ms:.0f} ms)" if error_ms else ""
    return f"about {load['estimated_wait_ms']} ms{off}"


def _memory(ratio: float) -> str:
    return f"{ratio:.0%} of its memory limit" if ratio else "no memory limit"


def _queue_row(queue: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        queue["queue_depth"],
        f"{queue['oldest_wait_ms']} ms",
        f"{queue['estimated_wait_ms']} ms",
        queue["in_flight_requests"],
        queue["capacity_lanes"],
        _short(queue["artifact_id"]) or queue["queue"],
    )


def _worker_row(worker: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        worker.get("state"),
        worker.get("served_backend"),
        f"{worker.get('in_flight')}/{worker.get('lanes')}",
        _megabytes(worker.get("memory_used_bytes")),
        _ago(worker.get("heartbeat_age_ms")),
        _digest(worker.get("artifact_id")),
        worker.get("worker_id"),
    )


def _trouble(worker: Mapping[str, Any]) -> Iterator[str]:
    """Why a worker does not serve, or not as it was asked to."""
    name = worker.get("worker_id")
    if refusal := worker.get("refusal"):
        yield from _wrapped(f"{name}: {refusal['code']}: {refusal['reason']}")
    if reason := worker.get("cpu_fallback_reason"):
        yield from _wrapped(f"{name}: CPU FALLBACK: {reason}")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _short(artifact_id: str | None) -> str | None:
    """``model@digest`` with as much of the digest as its queue's name has."""
    return None if artifact_id is None else re.sub(r"sha256:(.{12}).*", r"\1", artifact_id)


def _digest(artifact_id: str | None) -> str | None:
    """The first digits of an artifact's digest, by which the queues' table tells its name."""
    found = re.search(r"sha256:(.{8})", artifact_id or "")
    return found[1] if found else None


def _megabytes(count: int | None) -> str | None:
    return None if count is None else f"{count / 2**20:.0f} MB"


def _ago(age_ms: int | None) -> str | None:
    return None if age_ms is None else f"{age_ms / 1000:.1f} s"
