"""What is measured from outside: the stack that a plan asks for, and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from shared.keys import Keys


@dataclass(frozen=True, slots=True)
class PacedPlan:
    """A stack over engines without compute. ``lanes`` and ``step_ms`` are each worker's.

    ``settings`` are environment variables, ``redis_options`` arguments of the stack's own Redis,
    such as ``("--appendonly", "yes")``.
    """

    workers: int = 1
    lanes: int = 32
    step_ms: float = 80.0
    gateways: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    redis_options: tuple[str, ...] = ()

    @property
    def worker(self) -> tuple[str, ...]:
        """What runs as a worker: a module and its arguments."""
        pace = ("--lanes", str(self.lanes), "--step-ms", f"{self.step_ms:g}")
        return ("benchmarks.paced_worker", *pace)


@dataclass(frozen=True, slots=True)
class Target:
    """A running stack on this machine. ``pids`` by the names that its supervisor gives."""

    url: str
    redis_url: str
    namespace: str
    queue: str
    pids: Mapping[str, int]

    @property
    def keys(self) -> Keys:
        return Keys(self.namespace)


Start = Callable[[PacedPlan], AbstractContextManager[Target]]
"""Starts a stack and ends it when the block is left."""
