"""A part of the step that is repeated as a script does to the bit what it did as Python."""

from __future__ import annotations

import weakref

import pytest
import torch

from benchmarks.rig import Rig, open_model
from gpu_worker.engine import Engine
from gpu_worker.loading import warm_up
from gpu_worker.model.cache import spans
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.even import GRAIN, evenly
from gpu_worker.model.products import Int8, Plain, Product, Reordered
from gpu_worker.script import _Notes, scripted
from gpu_worker.step import FrameStep
from shared.governance.artifacts import Artifact
from tests.gpu_worker.tiny import (
    LANES,
    PROMPTED,
    Log,
    generation,
    make_engine,
    random_model,
    run,
)

pytestmark = pytest.mark.usefixtures("in_inference_mode")

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def scripted_engine(model: CsmModel, lanes: int = LANES) -> tuple[Engine, FrameStep]:
    return make_engine(model, lanes=lanes, chunk=64, prepare=FrameStep.script)


def speak(engine: Engine) -> list[Log]:
    """All lanes and all samplings, a neighbour past position 512, joins, replays, and again."""
    first = [
        generation("a", max_frames=14, seed=3, context_policy=PROMPTED),
        generation("b", "of another length", max_frames=7, top_k=1),
        generation("c", "!", max_frames=6, top_k=2000, temperature=1.7),
        generation("d", "l" * 505, max_frames=12, seed=5),
    ]
    log = run(engine, first)
    codes = tuple(log.codes("a"))
    again = [
        generation("a", max_frames=14, seed=3, context_policy=PROMPTED, replay=codes[:9]),
        generation("e", "greedy", max_frames=4, temperature=0.0),
        generation("f", "all of them", max_frames=5, top_k=100),
    ]
    return [log, run(engine, again)]


@DTYPES
def test_a_scripted_step_is_the_eager_one(dtype: torch.dtype) -> None:
    """Every event is the same: codes, samples, ends, whoever joins or leaves."""
    engine, step = scripted_engine(random_model(dtype=dtype))
    eager, _ = make_engine(random_model(dtype=dtype), chunk=64)

    ours, theirs = speak(engine), speak(eager)

    assert [each.events for each in ours] == [each.events for each in theirs]
    assert set(step._scripted or {}) == {
        *(("_speak", candidates) for candidates in (1, 64, 2048)),
        *(("_feed", span) for span in spans(step.window)),
        ("_repeat", 0),
    }


def test_two_threads_script_alike() -> None:
    """Also where a part can't be written down, because it takes turns with the threads."""
    request = generation("a", max_frames=3)
    torch.set_num_threads(2)
    try:
        engine, _ = scripted_engine(random_model(), 3)
        eager, _ = make_engine(random_model(), lanes=3, chunk=64)
        ours, theirs = run(engine, [request]), run(eager, [request])
    finally:
        torch.set_num_threads(1)

    assert ours.events == theirs.events


def test_a_script_runs_no_python() -> None:
    """A part runs once as Python, and is a full run of itself then; later none of it is called."""
    numbers, calls = torch.zeros(3), []

    def part() -> None:
        calls.append(1)
        numbers.add_(1)

    repeat = scripted(part)
    repeat()
    repeat()

    assert len(calls) == 1
    assert numbers.tolist() == [3, 3, 3]


def test_memory_is_written_and_read_in_order() -> None:
    """Views that share memory, made before or in a part, see each write and none too early."""
    numbers = torch.zeros(4)
    front, seen, last = numbers[:2], torch.zeros(3, 2), torch.zeros(4)

    def part() -> None:
        numbers.add_(1)
        seen[0].copy_(front)
        front.mul_(10)
        seen[1].copy_(numbers[:2])
        numbers[1:].sub_(0.5)
        seen[2].copy_(front)
        one, other = torch.split(numbers, 2)
        last.copy_(torch.cat([other, one]))

    repeat = scripted(part)
    numbers.zero_()
    repeat()

    assert seen.tolist() == [[1, 1], [10, 10], [10, 9.5]]
    assert last.tolist() == [0.5, 0.5, 10, 9.5]
    repeat()
    assert seen.tolist() == [[11, 10.5], [110, 105], [110, 104.5]]


def test_what_a_part_is_done_with_goes() -> None:
    """Writing a part down keeps nothing alive, and takes no tensor for one that was before it."""
    numbers, seen = torch.zeros(2), torch.zeros(9, 2)
    gone: list[bool] = []

    def part() -> None:
        for row in seen:
            made = numbers + len(gone)
            row.copy_(made)
            ref = weakref.ref(made)
            del made
            gone.append(ref() is None)

    repeat = scripted(part)
    numbers.fill_(1)
    repeat()

    assert gone == [True] * 9
    assert seen[:, 0].tolist() == [*range(1, 10)]


def test_equal_constants_are_written_once() -> None:
    """A frame's thousands of operators share their numbers and flags; unequal kinds stay apart."""
    numbers, out = torch.zeros(4), torch.zeros(2)

    def part() -> None:
        for _ in range(50):
            numbers.add_(1, alpha=1)
        out[0].copy_(numbers.sum(0, True)[0])
        out[1].add_(1.0)

    with _Notes() as notes:
        part()
    graph = notes.finished()
    kinds = [node.kind() for node in graph.nodes()]
    numbers.zero_()
    torch._C._create_function_from_graph("part", graph)(*notes.given)

    assert kinds.count("aten::add_") == 51
    assert kinds.count("prim::Constant") < 10
    assert numbers.tolist() == [50] * 4
    assert out.tolist() == [200, 2]


@pytest.mark.parametrize("make", [Plain, Reordered, Int8], ids=lambda make: make.__name__)
def test_every_product_can_be_scripted(make: type[Product]) -> None:
    """Rows by a matrix in each of its layouts, alone and added to sums."""
    matrix, rows, sums = torch.randn(48, 32), torch.zeros(5, 32), torch.zeros(5, 48)
    if make is Int8:
        product: Product = Int8((matrix * 20).to(torch.int8), torch.rand(48))
    else:
        product = make(matrix)  # type: ignore[call-arg]
    found, added = torch.zeros(5, 48), torch.zeros(5, 48)

    def part() -> None:
        found.copy_(product(rows))
        added.copy_(product.onto(rows, sums.clone()))

    repeat = scripted(part)
    rows.normal_()
    sums.normal_()
    repeat()

    assert found.any()
    assert torch.equal(found, product(rows))
    assert torch.equal(added, product.onto(rows, sums.clone()))


def test_a_part_that_looks_at_a_value_is_refused() -> None:
    """What goes its way by what it sees would be frozen in the way it went once."""
    numbers = torch.ones(2)

    def part() -> None:
        if numbers.sum() > 1:
            numbers.zero_()

    with pytest.raises(RuntimeError, match="looks at a value"):
        scripted(part)


def test_a_part_that_changes_threads_stays_as_it_is() -> None:
    """The number of threads is no operator's business, so a script would not change it."""
    numbers = torch.randn(3, GRAIN // 2)
    out, calls = torch.zeros_like(numbers), []

    def part() -> None:
        calls.append(1)
        out.copy_(evenly(torch.exp, numbers))

    torch.set_num_threads(2)
    try:
        repeat = scripted(part)
        repeat()
    finally:
        torch.set_num_threads(1)

    assert repeat is part
    assert len(calls) == 2
    assert torch.equal(out, torch.exp(numbers))


def test_a_warm_engine_has_all_its_scripts(tiny_artifact: Artifact) -> None:
    """After the warm-up no first caller waits for one, whatever the sampling."""
    rig = Rig(open_model(tiny_artifact, dtype=torch.float32), 2, 32)

    warm_up(rig.engine, tiny_artifact)
    scripts = dict(rig.step._scripted or {})
    rig.step._scripted = scripts
    for top_k in (1, 64, 300):
        run(rig.engine, [generation(str(top_k), voice_profile_id=voice(rig), top_k=top_k)])

    assert set(scripts) == {("_repeat", 0)} | {
        ("_feed", span) for span in spans(rig.step.window)
    } | {("_speak", candidates) for candidates in (1, 64, 2048)}


def voice(rig: Rig) -> str:
    return rig.opened.artifact.voices.default.profile_id
