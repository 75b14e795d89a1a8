"""``psionic-csm smoke`` against real processes: a stack that serves, and ones that are off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.governance.locations import seeded_artifact_dir
from tests.conftest import RedisServer, wait_until
from tests.e2e.stacks import CommandLine, Up, command_line, demo_cache

__all__ = ["command_line", "demo_cache"]

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

KEY = "sk-e2e-0123456789"
START_S = 60.0


@contextmanager
def process(line: CommandLine, module: str, log: Path, **variables: str) -> Iterator[None]:
    """One process of the service, whose log a test may read."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**line.environment, **variables},
            stdout=output,
        )
    try:
        yield
    finally:
        started.terminate()
        started.wait(START_S)


def said(log: Path, event: str) -> dict[str, Any]:
    """The first line of a process's log with this event, once it is there."""

    def lines() -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in log.read_text().splitlines(keepends=True)
            if line.endswith("\n") and f'"event": "{event}"' in line
        ]

    wait_until(lambda: bool(lines()), START_S)
    return lines()[0]


def test_a_real_stack_keeps_every_promise(command_line: CommandLine, tmp_path: Path) -> None:
    """The whole contract over Redis, a worker with the demo's model, and keys."""
    command_line.environment["PSIONIC_CSM_API_KEYS"] = KEY
    file = tmp_path / "report.json"
    with Up(command_line, "--lanes", "2") as up:
        command_line.environment["PSIONIC_CSM_API_KEY"] = KEY
        code, out, err = command_line.run("smoke", "--url", up.url, "--json", str(file))
        report = json.loads(file.read_text())

    assert code == 0, out + err
    assert report["ok"]
    assert {check["outcome"] for check in report["checks"]} <= {"kept", "skipped"}
    assert KEY not in out + err + file.read_text()
    assert report["deployment"]["workers"][0]["determinism_class"]


def test_a_gateway_without_workers_is_off_in_the_way_it_should_be(
    command_line: CommandLine, redis_server: RedisServer, demo_cache: Path, tmp_path: Path
) -> None:
    """``--expect disabled`` holds for a gateway of which nobody takes a job, and for one whose only
    worker refuses: every speech is refused with that worker's code.
    """
    artifact = seeded_artifact_dir(demo_cache)
    shared = {"PSIONIC_CSM_REDIS_URL": redis_server.url, "PSIONIC_CSM_ARTIFACTS": str(artifact)}
    log = tmp_path / "gateway.log"
    file = tmp_path / "report.json"
    with process(command_line, "gateway", log, PSIONIC_CSM_PORT="0", **shared):
        url = said(log, "gateway_listening")["url"]

        deserted = command_line.run("smoke", "--url", url, "--expect", "disabled")
        with process(
            command_line, "gpu_worker", tmp_path / "worker.log", PSIONIC_CSM_RUNTIME="off", **shared
        ):
            wait_until(lambda: refusal(url) == "runtime_disabled", START_S)
            refusing = command_line.run(
                *("smoke", "--url", url, "--expect", "disabled", "--json", str(file))
            )

    assert deserted[0] == 0, deserted
    assert refusing[0] == 0, refusing
    report = json.loads(file.read_text())
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert report["deployment"]["refusal"]["pending_phases"] == ["enable_csm_runtime"]
    assert details["refuses to speak in a stream"] == "runtime_disabled"


def refusal(url: str) -> str | None:
    """The code that the gateway gives for not serving."""
    health = httpx.get(f"{url}/health", trust_env=False).json()
    code = (health["runtime"]["refusal"] or {}).get("code")
    return code if isinstance(code, str) else None
