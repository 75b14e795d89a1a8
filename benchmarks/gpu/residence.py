"""What a worker holds on its device and says of it, loaded as the product loads it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import torch

from benchmarks import machine
from benchmarks.gpu.target import Check, Target
from gpu_worker.loading import load
from shared.settings import WorkerSettings

PEAK_OVER_KEPT: Final = 1.25


def residence(target: Target, directory: Path) -> list[Check]:
    """Load a worker's engine with the most lanes; its memory and its telemetry."""
    backend = target.backend
    settings = replace(
        WorkerSettings.from_env({}),
        lanes=target.most,
        prefill_chunk=target.chunk,
        torch_threads=torch.get_num_threads(),
    )
    if target.is_cuda:
        torch.cuda.synchronize(target.device)
        torch.cuda.reset_peak_memory_stats(target.device)
        held = torch.cuda.memory_allocated(target.device)
    loaded = load(settings, directory, backend)
    if target.is_cuda:
        peak = torch.cuda.max_memory_allocated(target.device) - held
    else:
        peak = machine.peak_rss_bytes()
    required, usage = loaded.memory_required_bytes, loaded.probe()
    is_told = usage.memory_used_bytes is not None and usage.memory_used_bytes >= required
    if target.is_cuda:
        is_told = is_told and usage.utilization is not None and 0.0 <= usage.utilization <= 1.0
        is_told = is_told and loaded.gpu_model == torch.cuda.get_device_name(target.device)
    return [
        Check(
            name=f"memory to load {target.most} lanes",
            bound=f"at most {PEAK_OVER_KEPT:g} x what is kept",
            passed=peak <= PEAK_OVER_KEPT * required if target.is_cuda else None,
            measured={"required_bytes": required, "peak_bytes": peak},
            reason="" if target.is_cuda else "a process's memory on a CPU holds Python too",
        ),
        Check(
            name="telemetry",
            bound="the device's name, memory in use and utilization, from the device itself",
            passed=is_told,
            measured={"gpu_model": loaded.gpu_model, **asdict(usage)},
        ),
        Check(
            name="backend",
            bound="the backend that was asked for, no fallback",
            passed=loaded.backend == backend and loaded.cpu_fallback_reason is None,
            measured={"backend": loaded.backend.label, "class": loaded.determinism_class},
        ),
    ]
