"""The machine: what it is, how busy it is, and how fast it reads its memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.records import Machine
from shared.cores import usable_cores

if TYPE_CHECKING:
    import torch

STREAM_BYTES: Final = 512 << 20
"""Far more than any cache holds."""


def load_average() -> float:
    """Of the last minute: how many processes wanted a core."""
    return round(os.getloadavg()[0], 2)


def describe(load_before: float) -> Machine:
    import torch

    return Machine(
        processor=processor(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        vector_unit=torch.backends.cpu.get_cpu_capability(),
        python=platform.python_version(),
        torch=torch.__version__,
        moshi=importlib.metadata.version("moshi"),
        transformers=version_of("transformers"),
        load_average_before=load_before,
        load_average_after=load_average(),
    )


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def peak_rss_bytes() -> int:
    """The most memory that this process ever held since it began to run this program.

    Not rusage where the system knows better: Linux counts there what the process that started this
    one held.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def streaming_read(device: torch.device) -> Callable[[], None]:
    """A call that reads STREAM_BYTES once through and returns when that is done.

    A sum over a buffer, on all of torch's threads: as plain a read as there is.
    """
    import torch

    buffer = torch.ones(STREAM_BYTES // 4, dtype=torch.float32, device=device)

    def read() -> None:
        buffer.sum().item()

    return read


def processor() -> str:
    """Its name, as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
