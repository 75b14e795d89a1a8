"""Brings a step's results to the host while the device goes on with the next part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Landing:
    """Pinned copies of tensors that every step writes anew, on a CUDA device.

    ``start`` behind the step that writes them, ``wait`` before the next one that does: so one set
    of copies is enough. The copying has a stream of its own and waits only for what was enqueued
    before ``start``, not for the backbone pass that follows.
    """

    def __init__(self, results: Sequence[Tensor]) -> None:
        self._results = tuple(results)
        self._copies = tuple(
            torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in self._results
        )
        device = self._results[0].device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._landed = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for copy, result in zip(self._copies, self._results, strict=True):
                copy.copy_(result, non_blocking=True)
            self._landed.record(self._stream)  # type: ignore[no-untyped-call]

    def wait(self) -> tuple[Tensor, ...]:
        """The copies, in the order given; overwritten after the next ``start``."""
        self._landed.synchronize()
        return self._copies
