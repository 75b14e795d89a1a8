"""How many cores this process may use, and how workers share them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota_file: Path = QUOTA_FILE) -> int:
    """The cores of the machine, less those that affinity or a container's quota takes away."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores  # no quota ("max"), or no such file


def threads_per_worker(workers: int, cores: int | None = None) -> int:
    """Torch threads of each of ``workers`` on one machine.

    Half of the logical cores are shared out: the two halves of a physical core share its arithmetic
    units, and the gateway needs room to breathe.
    """
    return max(1, (usable_cores() if cores is None else cores) // 2 // workers)
