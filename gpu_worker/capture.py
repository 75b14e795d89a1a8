"""Recording a part of the step once, to repeat it with a single launch.

A driver records calls that read and write the same memory every time. On CUDA that is a graph: some
six thousand kernels a frame would otherwise be launched one by one, which takes longer than running
them. A CPU has scripts instead (``gpu_worker.script``). Tests have a driver that checks what a
graph would demand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import torch

Run = Callable[[], None]
WARM_UPS: Final = 3


class Driver(Protocol):
    """``record(run)`` runs it some times and returns what repeats it; RuntimeError if it can't."""

    def record(self, run: Run) -> Run: ...


class CudaGraphs:
    """Graphs of one device that share their memory, so no two of them may run at once.

    What a graph returns lies in that shared memory: ``run`` has to copy it out to be kept. Record
    the largest first: a pool that grows later moves nothing, but keeps what it had. Not proven on
    hardware yet; ``make gpu-check`` is there to do so.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Run) -> Run:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                run()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA meanwhile, to ask for its memory for one.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            run()
        return graph.replay
