"""The step between two frames: it waits for nothing, and lanes that rest stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_worker.model.cache import KVCache
from gpu_worker.model.csm import CsmModel
from gpu_worker.step import FrameStep
from tests.gpu_worker.tiny import (
    LANES,
    TINY,
    Log,
    generation,
    make_engine,
    run_until,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")


class NoSync(TorchDispatchMode):
    """Fails at operations that wait for the device or whose shape depends on data."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.forbidden, name
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_nothing_and_rebinds_nothing() -> None:
    """Speaking, replaying and feeding never read a value on the host and write state in place."""
    engine, step = make_engine()
    log = Log()
    run_until(engine, log, generation("a", max_frames=60), frames=1)
    state = (step.hidden, step.codes, step.position, step.frame, step.speaking, step.cache.keys)
    addresses = [tensor.data_ptr() for tensor in state]
    active = torch.tensor([True, False, False, False])

    with NoSync():  # type: ignore[no-untyped-call]
        step.speak(active, 64)
        step.feed(512)
        step.repeat(step.codes, active)
        step.feed(512)

    kept = (step.hidden, step.codes, step.position, step.frame, step.speaking, step.cache.keys)
    assert [tensor.data_ptr() for tensor in kept] == addresses


def test_resting_lanes_do_not_move() -> None:
    """A step of one lane leaves the state of all others as it was, bit for bit."""
    engine, step = make_engine()
    log = Log()
    for key in "abcd":
        engine.submit(generation(key, max_frames=60))
    while len(log.frames("d")) < 2:
        engine.tick(log)
    before = [t.clone() for t in (step.hidden, step.position, step.frame, step.cache.keys)]

    step.speak(torch.tensor([False, True, False, False]), 64)
    step.feed(512)

    after = (step.hidden, step.position, step.frame, step.cache.keys)
    others = [0, 2, 3]
    for old, new in zip(before[:3], after[:3], strict=True):
        assert torch.equal(old[others], new[others])
        assert not torch.equal(old[1], new[1])
    window = slice(0, step.window)
    assert torch.equal(before[3][:, others, :, window], after[3][:, others, :, window])


class NoCpu(TorchDispatchMode):
    """Fails at a number that lies on the host: to bring it to a device waits for the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [each for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)]
        assert not any(each.is_cpu for each in tensors), func
        return func(*args, **(kwargs or {}))


def test_a_lane_is_emptied_without_asking_the_device() -> None:
    """On a device that computes nothing, and so can't answer: a step and the end of a lane."""
    with torch.device("meta"):
        model = CsmModel(TINY, device="meta")
        model._turns, codec = model._turns.to("meta"), MuteCodec()
        step = FrameStep(model, codec, LANES, 8)

        with NoCpu():  # type: ignore[no-untyped-call]
            step.speak(step.active, 64)
            step.feed(512)
            step.release(1)


class MuteCodec:
    """Makes silence, wherever it is told to be."""

    codebook_size = 2048

    def __init__(self) -> None:
        self.finite = torch.ones(LANES, dtype=torch.bool)

    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor:
        return torch.zeros((LANES, 1920), dtype=torch.int16)

    def reset(self, lane: int) -> None: ...


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_only_what_is_not_finite_is_cleared(value: float) -> None:
    """Both ways to clear a lane zero it if they have to, and leave it and its neighbours if not."""
    cache = KVCache(TINY.backbone, 3, 4, torch.float32, torch.device("cpu"))
    for way in ("cpu", "elsewhere"):
        cache.pairs.fill_(1.0)
        cache.pairs[0, 0, 1, 0, 2] = value
        for lane, finite in ((0, True), (1, False), (2, True)):
            cache.clear_unless(lane, said(finite, way))

        assert cache.pairs[:, :, 1].count_nonzero() == 0
        assert bool((cache.pairs[:, :, [0, 2]] == 1.0).all())


def said(finite: bool, way: str) -> Any:
    """A verdict, as a CPU's or as that of a device which is asked nothing."""
    answer = torch.tensor(finite)
    if way == "cpu":
        return answer
    return Elsewhere(~answer)


class Elsewhere:
    """A verdict that lies on another device: it can only be turned round, on that device."""

    device = torch.device("meta")

    def __init__(self, turned: Tensor) -> None:
        self._turned = turned

    def __invert__(self) -> Tensor:
        return self._turned
