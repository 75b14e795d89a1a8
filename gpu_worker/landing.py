"""A step's results, and how they come to the host while the device goes on with the next part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        self._device = self._results[0].device
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._landed = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for copy, result in zip(self._copies, self._results, strict=True):
                copy.copy_(result, non_blocking=True)
            self._landed.record(self._stream)  # type: ignore[no-untyped-call]

    def wait(self) -> tuple[Tensor, ...]:
        """The copies, in the order given; overwritten after the next ``start``."""
        self._landed.synchronize()
        return self._copies


@dataclass(frozen=True, slots=True)
class Spoken:
    """One frame of every lane, on the device and overwritten by the next.

    ``codes`` int64 [lanes, 32], ``pcm`` int16 [lanes, 1920], ``ended`` and ``finite`` bool [lanes]:
    whether the frame is the all-zero end frame, and whether all its logits and samples were
    finite. A lane that ended or is not finite has no samples.
    """

    codes: Tensor
    pcm: Tensor
    ended: Tensor
    finite: Tensor
    landing: Landing | None = None

    def on_host(self) -> Spoken:
        """The same on the host. Waits for this frame, not for what was enqueued behind it."""
        if self.landing is None:
            return self
        codes, pcm, ended, finite = self.landing.wait()
        return Spoken(codes, pcm, ended, finite)
