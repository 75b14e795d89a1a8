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
from dataclasses import dataclass, field
from typing import Final, TextIO

from cli.artifacts import chosen_or_demo
from cli.client import GatewayClient
from cli.logs import LogStream
from cli.signals import Signals
from cli.stack import Stack, StackPlan

START_WAIT_S: Final = 60.0
CACHE: Final = "PSIONIC_CSM_CACHE"


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """``lanes`` and ``step_ms`` are each worker's. ``settings`` are environment variables.

    ``redis_options`` are arguments of the stack's own Redis, such as ``("--appendonly", "yes")``.
    """

    workers: int = 1
    lanes: int = 32
    step_ms: float = 80.0
    gateways: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    redis_options: tuple[str, ...] = ()

    @property
    def worker(self) -> tuple[str, ...]:
        pace = ("--lanes", str(self.lanes), "--step-ms", f"{self.step_ms:g}")
        return ("benchmarks.paced_worker", *pace)


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
                with GatewayClient(url) as client:
                    stack.wait_until_ready(client, timeout_s=START_WAIT_S, notify=notify)
            yield stack


def _is_ours(name: str) -> bool:
    return name != CACHE and (name.startswith("PSIONIC_CSM_") or name == "REDIS_URL")
