"""Backends by name, and telemetry that is measured or absent, never made up."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from gpu_worker.backend import Backend, open_device, parse_backend
from gpu_worker.telemetry import cpu_usage, gpu_model, probe_for
from shared.errors import SpeechError

CUDA = Backend("cuda", 1)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("", Backend("cpu")),
        (" CPU ", Backend("cpu")),
        ("cuda", Backend("cuda", 0)),
        ("Cuda:2", Backend("cuda", 2)),
        ("mps", Backend("mps", 0)),
        ("metal", Backend("mps", 0)),
        ("metal:1", Backend("mps", 1)),
    ],
)
def test_parse_backend(text: str, backend: Backend) -> None:
    """Case and blanks around don't matter, metal is mps, no ordinal is the first device."""
    assert parse_backend(text) == backend


@pytest.mark.parametrize(
    "text", ["tpu", "cuda:", "cuda:x", "cuda:-1", "cpu:1", "cuda:1:2", "cu da"]
)
def test_parse_refuses(text: str) -> None:
    """What is no backend has its own code."""
    with pytest.raises(SpeechError) as caught:
        parse_backend(text)

    assert caught.value.code == "unsupported_backend"


def test_names_follow_the_backend() -> None:
    """Engine, residency and accelerator say what runs."""
    assert Backend("cuda").execution_engine == "torch_csm_cuda"
    assert Backend("mps").residency == "warm_mps"
    assert Backend("cuda").accelerated == "cuda"
    assert Backend("cpu").accelerated == "unavailable_fail_closed"


def test_open_device_runs_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is listed but doesn't run is unavailable; the CPU always runs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch, "zeros", broken)

    assert open_device(Backend("cpu")) == torch.device("cpu")
    with pytest.raises(SpeechError) as caught:
        open_device(Backend("cuda"))
    assert caught.value.code == "accelerator_unavailable"


def test_cpu_usage_is_resident_memory() -> None:
    """On a CPU the worker's memory is the process's, and no utilization is claimed."""
    usage = probe_for(Backend("cpu"))()

    resident = psutil.Process().memory_info().rss
    assert usage.memory_used_bytes is not None
    assert abs(usage.memory_used_bytes - resident) < 64 << 20
    assert usage.utilization is cpu_usage().utilization is None
    assert gpu_model(Backend("cpu")) == "none"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device number 1 as torch describes one."""
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda ordinal: SimpleNamespace(uuid=f"u{ordinal}")
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda ordinal: f"Card {ordinal}")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda ordinal: 1000 + ordinal)


class NvmlError(Exception):
    pass


def nvml(found: str, gpu: int | None) -> ModuleType:
    """A stand-in for NVML that knows one device."""

    def by_uuid(uuid: bytes) -> str:
        if uuid.decode() != found:
            raise NvmlError
        return found

    def rates(_: str) -> Any:
        if gpu is None:
            raise NvmlError
        return SimpleNamespace(gpu=gpu)

    module: Any = ModuleType("pynvml")
    module.NVMLError = NvmlError
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetHandleByUUID = by_uuid
    module.nvmlDeviceGetUtilizationRates = rates
    return module  # type: ignore[no-any-return]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("found", "gpu", "utilization"),
    [("GPU-u1", 37, 0.37), ("GPU-u1", None, None), ("GPU-u0", 5, None)],
)
def test_cuda_usage(
    monkeypatch: pytest.MonkeyPatch, found: str, gpu: int | None, utilization: float | None
) -> None:
    """Memory comes from torch, utilization from NVML's device of the same UUID or from nowhere."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml(found, gpu))

    usage = probe_for(CUDA)()

    assert usage.memory_used_bytes == 1001
    assert usage.utilization == utilization
    assert gpu_model(CUDA) == "Card 1"


@pytest.mark.usefixtures("card")
def test_cuda_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML's bindings the utilization is unknown, and that is all."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert probe_for(CUDA)().utilization is None
