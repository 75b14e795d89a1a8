"""What a stack is made of: the plan, its processes' environment, and the order of their start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli import redis_server
from cli.children import ChildSpec
from cli.exits import NOT_STARTED, CommandFailed
from cli.redis_server import LOOPBACK, OwnRedis
from cli.supervisor import Stage
from shared.cores import threads_per_worker
from shared.settings import SidePortSettings
from shared.variables import (
    ARTIFACTS,
    HOST,
    LANES,
    METRICS_PORT,
    NAMESPACE,
    PORT,
    REDIS_URL,
    TORCH_THREADS,
    read_artifact_dirs,
)

STOP_MARGIN_S: Final = 3.0
"""What a process gets beyond its own drain grace before it is killed."""


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What to start. ``port`` 0 takes a free one; ``lanes`` None leaves the number to the worker.

    ``private``: nobody else may meet this stack, even on a Redis that others use. It listens on the
    loopback interface and its namespace is its own, and is removed with it. ``gateways`` beyond the
    first take free ports. ``worker`` is what runs as a worker: a module and its arguments.
    ``redis_options``: arguments for a Redis of the stack's own.
    """

    artifact: Path
    workers: int = 1
    lanes: int | None = None
    host: str = LOOPBACK
    port: int = 0
    private: bool = False
    gateways: int = 1
    worker: tuple[str, ...] = ("gpu_worker",)
    redis_options: tuple[str, ...] = ()


def stack_environment(
    plan: StackPlan, given: Mapping[str, str], *, redis_url: str, namespace: str, port: int
) -> dict[str, str]:
    """The processes' environment: ``given``, and over it what the stack decides for all of them.

    Threads that were given stay as given. Raises CommandFailed for an artifact whose path can't be
    in a list of paths.
    """
    known = (each.absolute() for each in read_artifact_dirs(given))
    directories = dict.fromkeys([plan.artifact.absolute(), *known])
    for each in directories:
        _check_nameable(each)
    decided = {
        REDIS_URL: redis_url,
        NAMESPACE: namespace,
        HOST: plan.host,
        PORT: str(port),
        ARTIFACTS: os.pathsep.join(map(str, directories)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
    }
    if plan.lanes is not None:
        decided[LANES] = str(plan.lanes)
    if not given.get(TORCH_THREADS):
        decided[TORCH_THREADS] = str(threads_per_worker(plan.workers))
    return {**given, **decided}


def _check_nameable(directory: Path) -> None:
    if os.pathsep in str(directory):
        raise CommandFailed(
            NOT_STARTED,
            f"{directory}: an artifact's path goes into a list, where {os.pathsep!r} would end it",
            hint="rename the directory, or name a link to it",
        )


def stages(
    plan: StackPlan,
    own_redis: OwnRedis | None,
    environment: Mapping[str, str],
    ports: Sequence[int],
    directory: Path,
    grace_s: float,
) -> Iterator[Stage]:
    """What starts one after another. ``ports`` are the gateways', ``directory`` is Redis's own."""
    patient_s = grace_s + STOP_MARGIN_S
    if own_redis is not None:
        server = ChildSpec("redis", own_redis.command(directory), environment, STOP_MARGIN_S)
        yield Stage((server,), gate=lambda: redis_server.answers(own_redis.url))
    yield Stage((_child("scheduler", ("scheduler",), environment, STOP_MARGIN_S),))
    yield Stage(
        tuple(
            _child(f"worker-{number}", plan.worker, _metrics_port(environment, number), patient_s)
            for number in range(1, plan.workers + 1)
        )
    )
    yield Stage(
        tuple(
            _child(name, ("gateway",), {**environment, PORT: str(port)}, patient_s)
            for name, port in zip(gateway_names(len(ports)), ports, strict=True)
        )
    )


def gateway_names(count: int) -> tuple[str, ...]:
    """What the supervisor calls them: one is ``gateway``."""
    return ("gateway", *(f"gateway-{number}" for number in range(2, count + 1)))


def _child(
    name: str, module: Sequence[str], environment: Mapping[str, str], stop_wait_s: float
) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-m", *module), environment, stop_wait_s)


def _metrics_port(given: Mapping[str, str], offset: int) -> dict[str, str]:
    """``given`` for one of several processes on a host: ``offset`` above the port that is named."""
    port = SidePortSettings.from_env(given).port
    return {**given, METRICS_PORT: str(port + offset)} if port else dict(given)
