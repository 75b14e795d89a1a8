"""What a stack decides before it starts anything, and what it refuses to start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cli import redis_server, stack
from cli.client import GatewayClient
from cli.exits import NOT_STARTED, CommandFailed
from cli.logs import LogStream
from cli.signals import Signals
from cli.stack import Stack, unavailable
from cli.stack_plan import StackPlan
from cli.supervisor import Stage, StartFailure, Supervisor
from shared.environment import SettingsError
from shared.settings import GatewaySettings, SchedulerSettings, WorkerSettings


class Recorder(Supervisor):
    """Takes the stages and starts nothing."""

    stages: list[Stage]

    def __init__(self, stages: list[Stage], log: LogStream) -> None:
        super().__init__(stages, log)
        Recorder.stages = stages

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def join(self) -> None:
        pass


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Recorder]:
    monkeypatch.setattr(stack, "Supervisor", Recorder)
    monkeypatch.setattr(redis_server, "find_binary", lambda _: Path("redis-server"))
    Recorder.stages = []
    return Recorder


def enter(plan: StackPlan, environment: dict[str, str]) -> Stack:
    with Stack(plan, LogStream(None), Signals(), environment) as started:
        return started


def children(recorder: type[Recorder]) -> dict[str, dict[str, str]]:
    return {
        spec.name: dict(spec.environment) for stage in recorder.stages for spec in stage.children
    }


def test_processes_start_from_redis_to_gateway(recorded: type[Recorder], tmp_path: Path) -> None:
    """Redis first, then scheduler, workers and gateway, each stage behind the one before."""
    enter(StackPlan(tmp_path, workers=2), {})

    names = [[spec.name for spec in stage.children] for stage in recorded.stages]
    assert names == [["redis"], ["scheduler"], ["worker-1", "worker-2"], ["gateway"]]


def test_what_a_person_set_is_passed_on(recorded: type[Recorder], tmp_path: Path) -> None:
    """Settings in the caller's environment reach the processes; the plan wins where it decides."""
    given = {
        "PSIONIC_CSM_LEASE_MS": "2000",
        "PSIONIC_CSM_TORCH_THREADS": "7",
        "PSIONIC_CSM_PORT": "1",
        "PSIONIC_CSM_ARTIFACTS": os.pathsep.join(["/other", str(tmp_path)]),
        "PATH": "/bin",
    }
    started = enter(StackPlan(tmp_path, lanes=3), given)

    for environment in children(recorded).values():
        assert environment["PSIONIC_CSM_LEASE_MS"] == "2000"
        assert environment["PSIONIC_CSM_TORCH_THREADS"] == "7"
        assert environment["PSIONIC_CSM_LANES"] == "3"
        assert environment["PSIONIC_CSM_ARTIFACTS"] == os.pathsep.join([str(tmp_path), "/other"])
        assert environment["PSIONIC_CSM_PORT"] == started.url.rpartition(":")[2] != "1"
        assert environment["PATH"] == "/bin"


def test_the_processes_read_what_the_stack_means(recorded: type[Recorder], tmp_path: Path) -> None:
    """The composed environment parses, and all processes agree on Redis and namespace."""
    started = enter(StackPlan(tmp_path, lanes=5, host="0.0.0.0"), {})
    environments = children(recorded)

    gateway = GatewaySettings.from_env(environments["gateway"])
    worker = WorkerSettings.from_env(environments["worker-1"])
    scheduler = SchedulerSettings.from_env(environments["scheduler"])

    assert gateway.queue == worker.queue == scheduler.queue
    assert gateway.queue.redis_url == started.redis_url
    assert gateway.queue.namespace == started.namespace == "csm"
    assert (gateway.host, worker.lanes) == ("0.0.0.0", 5)
    assert started.url == f"http://127.0.0.1:{gateway.port}"


def test_two_stacks_share_nothing(recorded: type[Recorder], tmp_path: Path) -> None:
    """Two stacks with a Redis of their own have ports, URLs and, if private, namespaces apart."""
    one = enter(StackPlan(tmp_path, private=True), {})
    other = enter(StackPlan(tmp_path, private=True), {})

    assert one.url != other.url
    assert one.redis_url != other.redis_url
    assert one.namespace != other.namespace


def test_the_temporary_folder_goes_with_the_stack(
    recorded: type[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left in the folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with Stack(StackPlan(tmp_path), LogStream(None), Signals(), {}):
        assert len(list(tmp_path.iterdir())) == 1

    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_told_before_anything_starts(
    recorded: type[Recorder], tmp_path: Path
) -> None:
    """One line names host and port, the hint names the way out, and no process was started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CommandFailed) as caught:
            enter(StackPlan(tmp_path, port=port), {})

    assert caught.value.exit_code == NOT_STARTED
    assert str(port) in caught.value.message
    assert "--port" in (caught.value.hint or "")
    assert recorded.stages == []


def test_a_host_that_is_no_name_is_told_before_anything_starts(
    recorded: type[Recorder], tmp_path: Path
) -> None:
    """Nor does a name that nothing can look up end in more than a line."""
    with pytest.raises(CommandFailed, match="no such host") as caught:
        enter(StackPlan(tmp_path, host="\u00e9" * 80, port=8081), {})

    assert caught.value.exit_code == NOT_STARTED
    assert recorded.stages == []


def test_a_bad_setting_is_told_before_anything_starts(
    recorded: type[Recorder], tmp_path: Path
) -> None:
    """A setting that no process could use stops the start with its name."""
    with pytest.raises(SettingsError, match="PSIONIC_CSM_LEASE_MS"):
        enter(StackPlan(tmp_path), {"PSIONIC_CSM_LEASE_MS": "soon"})

    assert recorded.stages == []


def test_an_absent_redis_is_told_before_anything_starts(
    recorded: type[Recorder], tmp_path: Path
) -> None:
    """A URL that leads nowhere is named, without its password, and so is its variable."""
    url = f"redis://:secret@127.0.0.1:{redis_server.free_port()}/0"

    for name in ("REDIS_URL", "PSIONIC_CSM_REDIS_URL"):
        with pytest.raises(CommandFailed) as caught:
            enter(StackPlan(tmp_path), {name: url})

        assert "can't be used" in caught.value.message
        assert "secret" not in caught.value.message
        assert f"unset {name} to" in (caught.value.hint or "")
    assert recorded.stages == []


def test_why_no_worker_serves_is_told_with_its_code() -> None:
    """A worker's refusal becomes the failure, with the command to run about it."""
    failed = unavailable({"code": "csm_model_unavailable", "reason": "no file"}, Path("/srv/it"))

    assert failed.exit_code == NOT_STARTED
    assert failed.lines[0] == "error: csm_model_unavailable: no file"
    assert "psionic-csm artifacts verify /srv/it" in (failed.hint or "")


def test_scrapers_find_each_process_on_a_port_of_its_own(
    recorded: type[Recorder], tmp_path: Path
) -> None:
    """The port that was named is the scheduler's, the next ones are the workers'; 0 stays 0."""
    enter(StackPlan(tmp_path, workers=2), {"PSIONIC_CSM_METRICS_PORT": "9200"})
    named = {
        name: SchedulerSettings.from_env(environment).metrics.port
        for name, environment in children(recorded).items()
        if name.startswith(("scheduler", "worker"))
    }
    enter(StackPlan(tmp_path), {})
    unnamed = children(recorded)

    assert named == {"scheduler": 9200, "worker-1": 9201, "worker-2": 9202}
    assert SchedulerSettings.from_env(unnamed["worker-1"]).metrics.port == 0


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(("why", "hinted"), [("SIGKILL", True), ("exit code 1", False)])
def test_a_process_that_the_kernel_killed_comes_with_a_hint(why: str, hinted: bool) -> None:
    """Nobody else sends SIGKILL to a stack that starts: it is want of memory, and says so."""
    started = enter(StackPlan(Path("/a")), {})
    started.supervisor.failure = StartFailure("worker-1", why)
    started.supervisor.failed.set()

    with GatewayClient(started.url) as client, pytest.raises(CommandFailed) as caught:
        started.wait_until_ready(client, timeout_s=1, notify=lambda _: None)

    assert caught.value.message == f"worker-1 can't start ({why})"
    assert ("memory" in (caught.value.hint or "")) is hinted
