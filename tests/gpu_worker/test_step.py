"""The step between two frames: it waits for nothing, and lanes that rest stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gpu_worker.tiny import (
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
