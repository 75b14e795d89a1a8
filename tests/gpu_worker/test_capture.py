"""What recording a step as a graph demands, checked on a CPU by a driver that stands in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_worker.capture import Run
from gpu_worker.codec import StreamingMimi
from gpu_worker.engine import Engine
from gpu_worker.generation import Generation
from gpu_worker.model.csm import CsmModel
from gpu_worker.step import FrameStep
from tests.gpu_worker.tiny import (
    LANES,
    generation,
    make_engine,
    random_mimi,
    random_model,
    run,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")

FORBIDDEN = {
    # The first is what the others come down to, but inference mode shows them as they are called.
    "_local_scalar_dense": "reads a value on the host",
    "item": "reads a value on the host",
    "is_nonzero": "reads a value on the host",
    "resolve_conj": "hands values to the host",  # tolist and numpy begin so
    "nonzero": "has a shape that depends on data",
    "masked_select": "has a shape that depends on data",
    "unique": "has a shape that depends on data",
    "lift_fresh": "copies a constant from the host",
    "rand": "draws from a generator that no request owns",
    "randn": "draws from a generator that no request owns",
    "bernoulli_": "draws from a generator that no request owns",
    "exponential_": "draws from a generator that no request owns",
    "multinomial": "draws from a generator that no request owns",
}
VIEWS = {
    "view", "_unsafe_view", "transpose", "permute", "select", "slice", "split", "split_with_sizes",
    "unsqueeze", "squeeze", "expand", "as_strided", "t", "detach", "alias", "unfold",
    "view_as_real", "view_as_complex", "chunk", "narrow", "unbind", "flatten",
}  # fmt: skip


class Tape(TorchDispatchMode):
    """What a graph would hold: each operator with its constants, shapes and outer addresses."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[tuple[object, ...]] = []
        self._outer: set[int] = set()
        # Kept alive, so that no address is given out twice.
        self._inner: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in FORBIDDEN:
            raise RuntimeError(f"{name} {FORBIDDEN[name]}")
        if name == "index" and any(
            each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1]
        ):
            raise RuntimeError("an index by a mask has a shape that depends on data")
        given = tree_leaves((args, kwargs or {}))
        self.entries.append((name, *(self._describe(each) for each in given)))
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, Tensor) and _address(each) not in self._outer:
                self._inner[_address(each)] = each
        return out

    def count(self) -> int:
        """Operators that would be kernels."""
        return sum(entry[0] not in VIEWS for entry in self.entries)

    def _describe(self, value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        facts = (tuple(value.shape), value.dtype)
        if _address(value) in self._inner:
            return facts
        self._outer.add(_address(value))
        return (*facts, _address(value))


def _address(tensor: Tensor) -> int:
    if tensor.layout != torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr()


class Rehearsal:
    """Repeats what it recorded and fails where a graph would have gone its own, stale way."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, run: Run) -> Run:
        run()
        with Tape() as first:
            run()
        self.recorded += 1

        def replay() -> None:
            with Tape() as again:
                run()
            for then, now in zip(first.entries, again.entries, strict=True):
                if then != now:
                    raise RuntimeError(f"a graph would still run {then}, not {now}")
            self.replayed += 1

        return replay


def recorded_engine(model: CsmModel) -> tuple[Engine, FrameStep, Rehearsal]:
    driver = Rehearsal()
    engine, step = make_engine(model, prepare=lambda step: step.record(driver))
    return engine, step, driver


def requests() -> list[Generation]:
    voiced = {"context_policy": "prompt_profile_only"}
    return [
        generation("a", max_frames=5, seed=3),
        generation("b", "of another length", max_frames=7, top_k=1),
        generation("c", "!", max_frames=6, top_k=2000, **voiced),
        generation("d", max_frames=4, temperature=0.3),
        generation("e", "joins as another leaves", max_frames=5),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recorded_step_serves_anything(dtype: torch.dtype) -> None:
    """Lanes, lengths, seeds, samplings and joins change no operator, constant or address."""
    engine, _, driver = recorded_engine(random_model(dtype=dtype))
    eager, _ = make_engine(random_model(dtype=dtype))

    first, rest = requests()[:LANES], requests()[LANES:]
    logs = [(run(each, first), run(each, rest)) for each in (engine, eager)]

    assert driver.recorded == 5
    assert driver.replayed > 20
    for ours, theirs in zip(*logs, strict=True):
        assert ours.events == theirs.events


def test_a_recorded_step_replays_frames() -> None:
    """Delivered codes go through the recorded parts as through the eager ones."""
    engine, _, _ = recorded_engine(random_model())
    request = requests()[0]
    codes = run(engine, [request]).codes("a")

    again = generation("a", max_frames=5, seed=3, replay=tuple(codes[:2]))

    assert run(engine, [again]).codes("a") == codes[2:]


def test_what_was_not_recorded_is_an_error() -> None:
    """There is no silent eager path beside the recorded one."""
    _, step, _ = recorded_engine(random_model())

    with pytest.raises(KeyError):
        step.speak(torch.ones(LANES, dtype=torch.bool), 3)


def test_a_failed_recording_is_raised() -> None:
    """A step that waits for the device can't be recorded."""
    step = FrameStep(random_model(), WaitingCodec(), LANES, 8)

    with pytest.raises(RuntimeError, match="reads a value on the host"):
        step.record(Rehearsal())


def test_a_constant_that_changes_is_noticed() -> None:
    """The stand-in fails on a value that a graph would have frozen, and on memory that moved."""
    scale, buffers = [1.0], [torch.ones(2)]

    def scaled() -> None:
        buffers[0].mul_(scale[0])

    replay = Rehearsal().record(scaled)
    replay()

    scale[0] = 2.0
    with pytest.raises(RuntimeError, match="a graph would still run"):
        replay()
    scale[0], buffers[0] = 1.0, torch.ones(2)
    with pytest.raises(RuntimeError, match="a graph would still run"):
        replay()


class WaitingCodec:
    """Looks at its codes on the host."""

    codebook_size = 2048
    finite = torch.ones(LANES, dtype=torch.bool)

    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor:
        return torch.zeros((LANES, 1920), dtype=torch.int16) + int(codes.max())

    def reset(self, lane: int) -> None: ...


@pytest.mark.parametrize(
    ("part", "most"),
    [("_speak", 1970), ("_feed", 80), ("_repeat", 160)],
)
def test_operators_of_a_frame_are_counted(part: str, most: int) -> None:
    """The kernels that a frame launches: on CUDA they decide the speed of few lanes."""
    step = FrameStep(random_model(), StreamingMimi(random_mimi(), LANES), LANES, 8)
    with Tape() as tape:
        getattr(step, part)(64 if part == "_speak" else 512)

    assert tape.count() <= most


class SilentCodec:
    """Traceable, where moshi's modules are not."""

    codebook_size = 2048

    def __init__(self) -> None:
        self.finite = torch.ones(LANES, dtype=torch.bool)
        self.pcm = torch.zeros((LANES, 1920), dtype=torch.int16)

    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor:
        return self.pcm

    def reset(self, lane: int) -> None: ...


@pytest.mark.parametrize(("part", "size"), [("_speak", 64), ("_speak", 1), ("_feed", 512)])
def test_a_step_is_one_graph(part: str, size: int) -> None:
    """All but the codec traces as one full graph, so nothing in it depends on a value."""
    torch._dynamo.reset()
    step = FrameStep(random_model(), SilentCodec(), LANES, 8)
    call = getattr(step, part)
    traced: Any = torch.compile(call, backend="eager", fullgraph=True, dynamic=False)

    for lane in range(LANES):
        step.join(lane, 0.9, 50, lane, 8)
        step.position[lane] = 5 * lane
    step.active.fill_(True)
    traced(size)
    step.position.add_(3)
    with torch._dynamo.config.patch(error_on_recompile=True):
        traced(size)
