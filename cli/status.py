"""``psionic-csm status``: how a gateway and its workers stand, in 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from cli import remedies, show
from cli.client import GatewayClient
from cli.published import UNSAID, Part

HEALTH_KEYS: Final = {"status", "model", "runtime"}
"""A document without any of these is no gateway's of any version."""
WIDTH: Final = 78
LABEL: Final = 12
WORKER_COLUMNS: Final = ("state", "on", "busy", "memory", "heard", "serves", "worker")
QUEUE_COLUMNS: Final = ("waiting", "oldest", "estimate", "running", "lanes", "artifact")


def run(url: str, *, api_key: str | None, as_json: bool) -> None:
    """Shows what the gateway says of itself, then its load, and names what it doesn't say: another
    version may publish less. Raises :class:`CommandFailed`, also where nothing is a gateway's.
    """
    with GatewayClient(url, api_key=api_key) as client:
        document = client.health()
        if not document.keys() & HEALTH_KEYS:
            raise client.no_gateway()
        health = Part(document, "health")
        if not as_json:
            show.facts(_gateway(url, health), width=LABEL)
            _explain(health.inside("runtime"))
        load = client.load()
    if as_json:
        show.document({"health": document, "load": load})
        return
    _show_load(Part(load, "load", health.missing))
    if health.missing:
        show.out().print()
        _say(f"not published by this gateway: {', '.join(health.missing)}")


def _show_load(load: Part) -> None:
    show.facts(_load(load), width=LABEL)
    artifacts, workers = load.parts("artifacts"), load.parts("workers")
    if len(artifacts) > 1:
        show.out().print()
        show.table(QUEUE_COLUMNS, [_queue_row(queue) for queue in artifacts])
    if workers:
        show.out().print()
        show.table(WORKER_COLUMNS, [_worker_row(worker) for worker in workers])
    for worker in workers:
        for line in _trouble(worker):
            _say(line)


def _gateway(url: str, health: Part) -> list[tuple[str, str | None]]:
    runtime = health.inside("runtime")
    artifact = health.inside("artifact_descriptor").text("artifact_id")
    serving = f"{runtime.text('state')} on {runtime.text('backend')}"
    return [
        ("gateway", f"{url} ({health.text('status')})"),
        ("answers to", health.text("model")),
        ("artifact", _short(artifact)),
        ("runtime", f"{serving} ({runtime.text('execution_engine')})"),
        ("CPU FALLBACK", runtime.optional("cpu_fallback_reason")),
    ]


def _explain(runtime: Part) -> None:
    """A refusal, and what can be done about it."""
    if not runtime.document.get("refusal"):
        return
    refusal = runtime.inside("refusal")
    lines = [f"refusal: {refusal.text('code')}: {refusal.text('reason')}"]
    if remedy := remedies.of_caller(refusal.text("code")):
        lines.append(f"hint: {remedy}")
    for line in lines:
        _say(line)


def _load(load: Part) -> list[tuple[str, str | None]]:
    states = Counter(worker.text("state") for worker in load.parts("workers"))
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    codes = load.inside("refused_codes").document
    return [
        ("waiting", f"{load.text('queue_depth')}, the oldest for {load.text('oldest_wait_ms')} ms"),
        ("next wait", _estimate(load)),
        ("in flight", f"{load.text('in_flight_requests')} of {load.text('capacity_lanes')} lanes"),
        ("refused", f"{load.text('refused_recently')} in the last minute, by this gateway"),
        ("", ", ".join(f"{n} {code}" for code, n in codes.items()) or None),
        ("redis", _memory(load.number("redis_memory_ratio"))),
        ("workers", said or "none"),
    ]


def _estimate(load: Part) -> str:
    error_ms = load.number("estimated_wait_error_ms")
    off = f" (such estimates are off by {error_ms:.0f} ms)" if error_ms else ""
    return f"about {load.text('estimated_wait_ms')} ms{off}"


def _memory(ratio: float | None) -> str:
    if ratio is None:
        return UNSAID
    return f"{ratio:.0%} of its memory limit" if ratio else "no memory limit"


def _queue_row(queue: Part) -> tuple[Any, ...]:
    return (
        queue.text("queue_depth"),
        f"{queue.text('oldest_wait_ms')} ms",
        f"{queue.text('estimated_wait_ms')} ms",
        queue.text("in_flight_requests"),
        queue.text("capacity_lanes"),
        _short(queue.optional("artifact_id")) or queue.text("queue"),
    )


def _worker_row(worker: Part) -> tuple[Any, ...]:
    return (
        worker.text("state"),
        worker.text("served_backend"),
        f"{worker.text('in_flight')}/{worker.text('lanes')}",
        _megabytes(worker.number("memory_used_bytes")),
        _ago(worker.number("heartbeat_age_ms")),
        _digest(worker.optional("artifact_id")),
        worker.text("worker_id"),
    )


def _trouble(worker: Part) -> Iterator[str]:
    """Why a worker does not serve, or not as it was asked to."""
    name = worker.text("worker_id")
    if worker.document.get("refusal"):
        refusal = worker.inside("refusal")
        yield f"{name}: {refusal.text('code')}: {refusal.text('reason')}"
    if reason := worker.optional("cpu_fallback_reason"):
        yield f"{name}: CPU FALLBACK: {reason}"


def _say(line: str) -> None:
    for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False):
        show.out().print(part, markup=False)


def _short(artifact_id: str | None) -> str | None:
    """``model@digest`` with as much of the digest as its queue's name has."""
    return None if artifact_id is None else re.sub(r"sha256:(.{12}).*", r"\1", artifact_id)


def _digest(artifact_id: str | None) -> str | None:
    """The first digits of an artifact's digest, by which the queues' table tells its name."""
    found = re.search(r"sha256:(.{8})", artifact_id or "")
    return found[1] if found else None


def _megabytes(count: float | None) -> str | None:
    return None if count is None else f"{count / 2**20:.0f} MB"


def _ago(age_ms: float | None) -> str | None:
    return None if age_ms is None else f"{age_ms / 1000:.1f} s"
