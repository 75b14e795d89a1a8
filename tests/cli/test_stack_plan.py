"""What a plan makes of an environment, as the processes read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.exits import NOT_STARTED, CommandFailed
from cli.stack_plan import StackPlan, stack_environment
from shared.settings import GatewaySettings, WorkerSettings


def test_a_stack_s_environment_is_what_its_processes_read() -> None:
    """What a stack decides is found by the settings, and what it leaves open stays as given."""
    given = {
        "PSIONIC_CSM_TORCH_THREADS": "3",
        "PSIONIC_CSM_LEASE_MS": "2000",
        "PSIONIC_CSM_ARTIFACTS": "/two",
        "HOME": "/h",
    }
    plan = StackPlan(Path("/one"), lanes=5)

    env = stack_environment(
        plan, given, redis_url="redis://127.0.0.1:1/0", namespace="ours", port=4321
    )

    gateway, worker = GatewaySettings.from_env(env), WorkerSettings.from_env(env)
    assert (gateway.host, gateway.port) == ("127.0.0.1", 4321)
    assert gateway.artifact_dirs == (Path("/one"), Path("/two"))
    assert (worker.artifact_dir, worker.lanes, worker.torch_threads) == (Path("/one"), 5, 3)
    assert gateway.queue == worker.queue
    assert (gateway.queue.redis_url, gateway.queue.namespace) == ("redis://127.0.0.1:1/0", "ours")
    assert gateway.queue.lease_ms == 2000


def test_an_artifact_that_a_list_can_t_name_is_told() -> None:
    """A colon in its path would make two directories of it, neither of which is there."""
    plan = StackPlan(Path("/one:two"))

    with pytest.raises(CommandFailed, match=r"^/one:two: ") as caught:
        stack_environment(plan, {}, redis_url="redis://127.0.0.1:1/0", namespace="n", port=1)

    assert caught.value.exit_code == NOT_STARTED
