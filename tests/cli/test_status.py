"""What ``psionic-csm status`` shows: all that an operator looks for, in 80 columns."""

from __future__ import annotations

import json
import re
from typing import Any, Self

import pytest

from cli import main, status
from cli.exits import OK, REFUSED, CommandFailed

ARTIFACT = f"sesame/csm-1b@sha256:{'a' * 64}"
LOAD_ROW = {
    "queue_depth": 12,
    "in_flight_requests": 63,
    "capacity_lanes": 64,
    "estimated_wait_ms": 1234,
    "oldest_wait_ms": 9876,
}
WORKERS: list[dict[str, Any]] = [
    {
        "worker_id": "gpu-host-17-4711-0a1b2c3d",
        "state": "ready",
        "served_backend": "cuda",
        "lanes": 32,
        "in_flight": 31,
        "memory_used_bytes": 12 << 30,
        "heartbeat_age_ms": 250,
        "artifact_id": ARTIFACT,
    },
    {
        "worker_id": "gpu-host-18-4711-0a1b2c3d",
        "state": "unavailable",
        "served_backend": "none",
        "lanes": 0,
        "in_flight": 0,
        "memory_used_bytes": None,
        "heartbeat_age_ms": 100,
        "refusal": {
            "code": "accelerator_unavailable",
            "reason": "no CUDA device was found by the driver that this container was given",
        },
    },
]
HEALTH = {
    "status": "degraded",
    "model": "sesame/csm-1b",
    "artifact_descriptor": {"artifact_id": ARTIFACT},
    "runtime": {
        "state": "unavailable",
        "backend": "none",
        "execution_engine": "none",
        "refusal": {"code": "no_ready_worker", "reason": "no worker serves this artifact"},
    },
}


class Gateway:
    """Stands in for a client of a gateway."""

    away = False
    says: dict[str, Any] = HEALTH
    lacks: tuple[str, ...] = ()
    memory_ratio = 0.815

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def health(self) -> dict[str, Any]:
        return self.says

    def no_gateway(self) -> CommandFailed:
        return CommandFailed(REFUSED, "this is not a gateway")

    def load(self) -> dict[str, Any]:
        if Gateway.away:
            raise CommandFailed(REFUSED, "the queue can't be reached", code="queue_unavailable")
        rows = [{"queue": f"csm.{name}", "artifact_id": ARTIFACT, **LOAD_ROW} for name in "ab"]
        refused = {"refused_recently": 7, "refused_codes": {"queue_memory_low": 5, "queue_full": 2}}
        redis = {"redis_memory_ratio": self.memory_ratio}
        whole = {
            **LOAD_ROW,
            **refused,
            **redis,
            "estimated_wait_error_ms": 12.5,
            "artifacts": rows,
            "workers": WORKERS,
        }
        return {name: value for name, value in whole.items() if name not in self.lacks}


@pytest.fixture(autouse=True)
def _gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "GatewayClient", Gateway)
    monkeypatch.setattr(Gateway, "away", False)


def test_status_shows_queue_lanes_waits_and_workers_in_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Depth, oldest, lanes, refusals by code, Redis, each worker's state and its refusal."""
    assert main.run(["status"]) == OK

    said = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80
    for fact in ("12, the oldest for 9876 ms", "about 1234 ms", "63 of 64 lanes", "7 in the last"):
        assert fact in said
    assert "1 ready, 1 unavailable" in said
    assert "5 queue_memory_low, 2 queue_full" in said
    assert "82% of its memory limit" in said
    assert "31/32" in said
    assert "aaaaaaaa  gpu-host-17" in said
    assert "accelerator_unavailable: no CUDA" in said
    assert "refusal: no_ready_worker" in said
    assert "python -m gpu_worker" in said


def test_a_redis_without_a_limit_is_not_called_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway says 0 where there is no limit to hold the memory against."""
    monkeypatch.setattr(Gateway, "memory_ratio", 0.0)

    assert main.run(["status"]) == OK

    assert re.search(r"redis +no memory limit", capsys.readouterr().out)


@pytest.mark.parametrize(
    "lacks", ["refused_codes", "oldest_wait_ms", "redis_memory_ratio", "workers"]
)
def test_a_gateway_of_another_version_is_shown_as_far_as_it_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """What it doesn't publish is named, and all else is there."""
    monkeypatch.setattr(Gateway, "lacks", (lacks,))

    assert main.run(["status"]) == OK

    said = capsys.readouterr().out
    assert f"not published by this gateway: load.{lacks}\n" in said
    assert "63 of 64 lanes" in said
    assert "sesame/csm-1b" in said


def test_every_key_may_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document with next to nothing, or with other kinds of values, is no crash."""
    monkeypatch.setattr(Gateway, "says", {"status": "ready", "runtime": "fine"})
    monkeypatch.setattr(Gateway, "load", lambda _: {"artifacts": [{}, 3], "workers": [{}]})

    assert main.run(["status"]) == OK

    said = " ".join(capsys.readouterr().out.split())
    assert "(ready)" in said
    for name in ("health.runtime", "health.model", "load.queue_depth", "load.workers[].state"):
        assert name in said
    assert "health.runtime.state" not in said


def test_what_is_no_gateway_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JSON object that has nothing of a gateway's is refused as such."""
    monkeypatch.setattr(Gateway, "says", {"hello": "world"})

    assert main.run(["status"]) == REFUSED
    assert capsys.readouterr().err == "error: this is not a gateway\n"


def test_nothing_is_missing_from_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """The names that are looked for are those of the documents."""
    assert main.run(["status"]) == OK
    assert "not published" not in capsys.readouterr().out


def test_status_as_json_is_what_the_gateway_says(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: both documents, whole, and nothing else."""
    assert main.run(["status", "--json"]) == OK

    document = json.loads(capsys.readouterr().out)
    assert document["health"] == HEALTH
    assert document["load"]["workers"] == WORKERS


def test_without_redis_status_shows_what_the_gateway_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The health is shown although the load can't be, and the exit code says so."""
    monkeypatch.setattr(Gateway, "away", True)

    assert main.run(["status"]) == REFUSED

    said = capsys.readouterr()
    assert "sesame/csm-1b" in said.out
    assert "error: queue_unavailable" in said.err
