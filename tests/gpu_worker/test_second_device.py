"""A device beside the current one: whatever waits, waits for that device's own work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu_worker.backend import Backend, open_device
from gpu_worker.capture import CudaGraphs
from gpu_worker.landing import Landing

SECOND = torch.device("cuda", 1)


class OneStream:
    """Notes what it waits for. Without a device it is one of the first device, torch's default."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cuda", 0)
        self.waited_for: list[torch.device] = []

    def wait_stream(self, other: OneStream) -> None:
        self.waited_for.append(other.device)


class Cuda:
    """As much of ``torch.cuda`` as streams need; ``current`` are the streams that work goes to."""

    def __init__(self) -> None:
        self.current: dict[torch.device, OneStream] = {}
        self.made: list[OneStream] = []

    def Stream(self, device: torch.device) -> OneStream:
        self.made.append(OneStream(device))
        return self.made[-1]

    def current_stream(self, device: torch.device | None = None) -> OneStream:
        found = OneStream(device)
        return self.current.setdefault(found.device, found)

    @contextmanager
    def stream(self, _: OneStream) -> Iterator[None]:
        yield

    @contextmanager
    def graph(self, _: object, **__: object) -> Iterator[None]:
        yield

    def Event(self) -> SimpleNamespace:
        return SimpleNamespace(record=lambda _: None)

    def CUDAGraph(self) -> SimpleNamespace:
        return SimpleNamespace(replay=lambda: None)

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, 1)


def unpinned(*shape: Any, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
    assert pin_memory
    return torch.empty(*shape, dtype=dtype)


def test_results_land_after_the_step_of_their_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies wait for the device that the results are on, whichever is current."""
    cuda = Cuda()
    monkeypatch.setattr("gpu_worker.landing.torch", SimpleNamespace(cuda=cuda, empty=unpinned))
    result: Any = SimpleNamespace(shape=(2,), dtype=torch.int64, device=SECOND)
    landing = Landing([result])
    monkeypatch.setattr(landing, "_copies", (SimpleNamespace(copy_=lambda *_, **__: None),))

    landing.start()

    assert [stream.device for stream in cuda.made] == [SECOND]
    assert cuda.made[0].waited_for == [SECOND]


def test_graphs_are_recorded_beside_the_work_of_their_own_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Warming up begins after what was enqueued on that device, and its other work after that."""
    cuda = Cuda()
    monkeypatch.setattr("gpu_worker.capture.torch", SimpleNamespace(cuda=cuda))

    CudaGraphs(SECOND).record(lambda: None)

    assert cuda.made[0].waited_for == [SECOND]
    assert cuda.current[SECOND].waited_for == [SECOND]
    assert list(cuda.current) == [SECOND]


def test_an_opened_device_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that name no device mean the one that was asked for, and nothing touches another."""
    calls: list[tuple[str, torch.device]] = []

    def zeros(_: int, *, device: torch.device) -> torch.Tensor:
        calls.append(("ran", device))
        return torch.empty(1)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda each: calls.append(("current", each)))
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    assert open_device(Backend("cuda", 1)) == SECOND
    assert calls == [("current", SECOND), ("ran", SECOND)]
