"""Processor time of processes that run beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import psutil


class ProcessorTime:
    """Seconds of processor that named processes use between ``start`` and ``stop``.

    The kernel counts in hundredths of a second: measure over several.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before = self._read()
        self.used: dict[str, float] = {}

    def start(self) -> Self:
        self._before = self._read()
        return self

    def stop(self) -> Self:
        after = self._read()
        self.used = {name: after[name] - self._before[name] for name in after}
        return self

    def of(self, role: str) -> float:
        """Of all processes whose name begins so."""
        return sum(seconds for name, seconds in self.used.items() if name.startswith(role))

    @property
    def total(self) -> float:
        return sum(self.used.values())

    def _read(self) -> dict[str, float]:
        return {name: _seconds(process) for name, process in self._processes.items()}


def _seconds(process: psutil.Process) -> float:
    """Its own and that of children that it has waited for: a worker may fork for each job."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
