"""Inside a step: nothing waits for the device, and nothing grows however often lanes change."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.target import Check, Target
from benchmarks.rig import SENTENCE, TEMPERATURE, TOP_K, Rig, open_step
from gpu_worker.capture import CudaGraphs, Run
from gpu_worker.model.cache import span_for
from gpu_worker.sampling import candidates_for
from gpu_worker.step import FrameStep

WAITING: Final = ("item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique")
"""Operators whose result the host needs before it can go on."""


class Waited(Exception):
    """A step asked the device for a value."""


class Guard(TorchDispatchMode):
    """Raises Waited at an operator that would wait: on a CPU, what CUDA's debug mode is on CUDA."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING or (name == "index" and _has_mask(args[1])):
            raise Waited(str(func))
        return func(*args, **(kwargs or {}))


def _has_mask(indices: Sequence[Any]) -> bool:
    """Whether a mask picks: how many it picks is a question to the device."""
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices)


@contextmanager
def no_waiting(target: Target) -> Iterator[None]:
    """Raises Waited or RuntimeError where the host waits for the device."""
    if not target.is_cuda:
        with Guard():  # type: ignore[no-untyped-call]
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def no_sync(target: Target) -> Check:
    """Whole steps of all lanes without a wait; results are read by nobody."""
    with torch.inference_mode():
        rig = Rig(target.opened, target.most, target.chunk)
        rig.fill(rig.lanes)
        active = torch.ones_like(rig.step.speaking)
        candidates = candidates_for(TOP_K, rig.step.codebook_size)
        span = span_for(2 * target.frames, rig.step.window)
        reason = ""
        try:
            with no_waiting(target):
                for _ in range(target.frames):
                    rig.step.speak(active, candidates)
                    rig.step.feed(span)
        except (Waited, RuntimeError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        rig.opened.wait()
    return Check(
        name="no wait inside a step",
        bound=f"none in {target.frames} steps",
        passed=not reason,
        measured={"steps": target.frames, "lanes": rig.lanes},
        reason=reason,
    )


def capture(target: Target) -> Check:
    """Whole steps as recorded graphs against the same steps run eagerly, every lane speaking."""
    with torch.inference_mode():
        eager, recorded = (
            open_step(target.opened, target.most, target.chunk) for _ in ("eager", "recorded")
        )
        recorded.record(CudaGraphs(target.device) if target.is_cuda else AsItIs())
        expected, eager_s = _spoken(target, eager)
        found, recorded_s = _spoken(target, recorded)
    pairs = enumerate(zip(expected, found, strict=True))
    differ = [frame for frame, (one, other) in pairs if not _equal(one, other)]
    return Check(
        name="recorded steps",
        bound="bitwise the eager ones: codes, samples and hidden states",
        passed=not differ,
        measured={
            "lanes": target.most,
            "frames": len(found),
            "frames_that_differ": differ,
            "eager_step_s": eager_s,
            "recorded_step_s": recorded_s,
        },
    )


class AsItIs:
    """A driver for devices without graphs: runs what it was to record."""

    def record(self, run: Run) -> Run:
        run()
        return run


def _spoken(target: Target, step: FrameStep) -> tuple[list[tuple[Tensor, ...]], float]:
    """What each of ``target.frames`` steps left behind, on the host, and the median step."""
    frames, opened = target.frames, target.opened
    for lane in range(step.lanes):
        text = opened.text_frames(f"{lane}. {SENTENCE}")
        step.join(lane, TEMPERATURE, TOP_K, lane, frames)
        for start in range(0, len(text), step.chunk):
            rows = slice(start, start + step.chunk)
            step.prefill(lane, text.tokens[rows], text.mask[rows], start)
    active = torch.ones_like(step.speaking)
    candidates = candidates_for(TOP_K, step.codebook_size)
    left: list[tuple[Tensor, ...]] = []
    times = []
    for _ in range(frames):
        opened.wait()
        began = time.perf_counter()
        spoken = step.speak(active, candidates)
        step.feed(step.window)
        opened.wait()
        times.append(time.perf_counter() - began)
        left.append(tuple(each.cpu().clone() for each in (spoken.codes, spoken.pcm, step.hidden)))
    return left, statistics.median(times)


def _equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def flat_memory(target: Target) -> Check:
    """Lanes that join, are cancelled and join again leave the device's memory as it was."""
    with torch.inference_mode():
        rig = Rig(target.opened, target.most, target.chunk)
        _churn(rig, 2)
        before = _allocated(target)
        _churn(rig, max(2, target.frames // 8))
        after = _allocated(target)
    grown = None if before is None or after is None else after - before
    return Check(
        name="memory while lanes come and go",
        bound="not one byte more",
        passed=None if grown is None else grown <= 0,
        measured={"bytes_before": before, "grown_bytes": grown},
        reason="" if target.is_cuda else "torch counts memory on CUDA alone",
    )


def _churn(rig: Rig, times: int) -> None:
    for _ in range(times):
        with rig.filled(rig.lanes):
            rig.speak_on()


def _allocated(target: Target) -> int | None:
    return int(torch.cuda.memory_allocated(target.device)) if target.is_cuda else None
