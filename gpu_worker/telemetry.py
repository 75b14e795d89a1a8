"""What the worker's model occupies, asked of the machine. What can't be known is None.

Torch is touched only for an accelerator that is already open; on a CPU this is the process's
resident memory and nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from gpu_worker.backend import Backend
from shared.messages import NOTHING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Usage:
    """``memory_used_bytes`` of this process on its device; ``utilization`` 0.0 .. 1.0 of a GPU."""

    memory_used_bytes: int | None
    utilization: float | None


Probe = Callable[[], Usage]


def cpu_usage() -> Usage:
    """Resident memory of this process. A CPU's load belongs to the host, so it is not claimed."""
    return Usage(int(psutil.Process().memory_info().rss), None)


def gpu_model(backend: Backend) -> str:
    """The device's own name, ``none`` on a CPU, ``unknown`` where the platform names none."""
    if backend.label == "cpu":
        return NOTHING
    if backend.label == "cuda":
        import torch

        return str(torch.cuda.get_device_name(backend.ordinal))
    return "unknown"


def probe_for(backend: Backend) -> Probe:
    """How to ask for the usage of an open device. Call it after the model has loaded."""
    if backend.label == "cpu":
        return cpu_usage
    import torch

    if backend.label == "mps":
        return lambda: Usage(int(torch.mps.driver_allocated_memory()), None)
    handle = _nvml_handle(torch.cuda.get_device_properties(backend.ordinal))
    return lambda: Usage(int(torch.cuda.memory_reserved(backend.ordinal)), _utilization(handle))


def _nvml_handle(properties: torch._C._CudaDeviceProperties) -> tuple[Any, Any] | None:
    """NVML's module and handle for a device, found by UUID: ordinals of the two may differ."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}".encode())
    except nvml.NVMLError:
        return None


def _utilization(handle: tuple[Any, Any] | None) -> float | None:
    if handle is None:
        return None
    nvml, device = handle
    try:
        return float(nvml.nvmlDeviceGetUtilizationRates(device).gpu) / 100.0
    except nvml.NVMLError:
        return None
