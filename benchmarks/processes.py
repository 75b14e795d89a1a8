"""Processor time of processes that run beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil


class ProcessorTime:
    """Seconds of processor that named processes use between ``start`` and ``stop``.

    The kernel counts in hundredths of a second: measure over several. ``waited``: seconds for which
    they were ready to run and no core was free, 0 where the system does not say.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before, self._waited_before = self._read(), self._read_waits()
        self.used: dict[str, float] = {}
        self.waited: dict[str, float] = {}

    def start(self) -> Self:
        self._before, self._waited_before = self._read(), self._read_waits()
        return self

    def stop(self) -> Self:
        after, waited = self._read(), self._read_waits()
        self.used = {name: after[name] - self._before[name] for name in after}
        self.waited = {name: max(0.0, waited[name] - self._waited_before[name]) for name in after}
        return self

    def of(self, role: str) -> float:
        """Of all processes whose name begins so."""
        return sum(seconds for name, seconds in self.used.items() if name.startswith(role))

    @property
    def total(self) -> float:
        return sum(self.used.values())

    def _read(self) -> dict[str, float]:
        return {name: _seconds(process) for name, process in self._processes.items()}

    def _read_waits(self) -> dict[str, float]:
        return {name: _waited_s(process.pid) for name, process in self._processes.items()}


def _waited_s(pid: int) -> float:
    """Of the threads that it has now: the second number of each one's schedstat, in nanoseconds."""
    total = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(stat.read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue  # the thread has just ended, or the kernel doesn't count
    return total / 1e9


def _seconds(process: psutil.Process) -> float:
    """Its own and that of children that it has waited for: a worker may fork for each job."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
