"""A whole stack over engines that compute nothing, for benchmarks and tests of the queue.

    with paced_stack(PacedPlan(workers=2, lanes=8)) as stack:
        httpx.post(f"{stack.url}/psionic/csm/speech", json={"input": "Hello."})
        os.kill(stack.supervisor.pid("worker-1"), signal.SIGKILL)

Everything but the engine is what serves: Redis, scheduler, gateways and workers as processes, kept
running by a supervisor. Up in two or three seconds; no torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

from benchmarks.target import PacedPlan, Target
from cli.artifacts import chosen_or_demo, open_artifact
from cli.client import GatewayClient
from cli.logs import LogStream
from cli.signals import Signals
from cli.stack import Stack
from cli.stack_plan import StackPlan, gateway_names
from shared.environment import PREFIX
from shared.variables import CACHE, COMMON_REDIS_URL, read_caller_key

__all__ = ["PacedPlan", "paced_stack", "paced_target"]

START_WAIT_S: Final = 60.0


@contextmanager
def paced_stack(
    plan: PacedPlan,
    *,
    log_to: TextIO | None = None,
    notify: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Stack]:
    """Start it, wait until it serves, and end it. Raises :class:`CommandFailed` if it can't start.

    The demo's manifest is the artifact; it is built once where it was never built. Of the given
    environment no setting of the service is taken, except where the cache lies.
    """
    base = {name: value for name, value in environment.items() if not _is_ours(name)}
    with Signals() as signals:
        with signals.raising():
            artifact = chosen_or_demo(None, notify, base)
        composed = StackPlan(
            artifact,
            workers=plan.workers,
            gateways=plan.gateways,
            worker=plan.worker,
            redis_options=plan.redis_options,
        )
        log = LogStream(log_to)
        with Stack(composed, log, signals, {**base, **plan.settings}) as stack, signals.raising():
            for url in stack.urls:
                with GatewayClient(url, api_key=read_caller_key(plan.settings)) as client:
                    stack.wait_until_ready(client, timeout_s=START_WAIT_S, notify=notify)
            yield stack


@contextmanager
def paced_target(plan: PacedPlan, notify: Callable[[str], None]) -> Iterator[Target]:
    """As ``paced_stack``, for those who look at it from outside."""
    with paced_stack(plan, notify=notify) as stack:
        workers = (f"worker-{number}" for number in range(1, plan.workers + 1))
        names = ("redis", "scheduler", *workers, *gateway_names(plan.gateways))
        pids = {name: stack.supervisor.pid(name) for name in names}
        yield Target(
            url=stack.url,
            redis_url=stack.redis_url,
            namespace=stack.namespace,
            queue=open_artifact(stack.plan.artifact).queue_name(stack.namespace),
            pids={name: pid for name, pid in pids.items() if pid is not None},
        )


def _is_ours(name: str) -> bool:
    return name != CACHE and (name.startswith(PREFIX) or name == COMMON_REDIS_URL)
