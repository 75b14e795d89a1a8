"""How much of a frame lies outside operators: what is counted, and what is not."""

from __future__ import annotations

import time

import pytest
import torch

from benchmarks.overhead import (
    Operator,
    outermost,
    overhead,
    own_times,
    recording_us,
    shares_of,
)


def frame(start: float, gap: float = 2.0, name: str = "aten::b") -> list[Operator]:
    """Two operators of 10 and 30 microseconds."""
    return [
        Operator("aten::a", start, start + 10),
        Operator(name, start + 10 + gap, start + 40 + gap),
    ]


NESTED = [
    Operator("aten::linear", 0, 9),
    Operator("aten::mm", 0, 5),
    Operator("aten::copy_", 7, 9),
    Operator("aten::add", 9, 12),
]


def test_only_outermost_operators_count() -> None:
    """What an operator calls is inside it, also where both begin or end at one moment."""
    assert [each.name for each in outermost(NESTED)] == ["aten::linear", "aten::add"]


def test_own_times_add_up() -> None:
    """An operator's own time is without its calls', so that nothing counts twice."""
    expected = {"aten::linear": 2, "aten::mm": 5, "aten::copy_": 2, "aten::add": 3}

    assert own_times(NESTED) == expected


def test_gaps_within_and_between_frames_are_outside() -> None:
    """From the end of each operator to the beginning of the next, that of the next frame too."""
    shares = shares_of([*frame(0), *frame(45), *frame(90)], 3)

    assert (shares.inside_us, shares.outside_us, shares.operators) == (40, 2 + 3, 2)


def test_what_the_machine_did_once_is_not_ours() -> None:
    """One gap of a second in one of five frames changes nothing."""
    starts = [0.0, 45.0, 90.0, 1_000_135.0, 1_000_180.0]
    frames = [each for start in starts for each in frame(start)]

    assert shares_of(frames, 5).outside_us == 2 + 3


@pytest.mark.parametrize(
    "odd", [frame(45, name="aten::c"), frame(45)[:1]], ids=["another", "missing"]
)
def test_frames_that_differ_are_no_measurement(odd: list[Operator]) -> None:
    """Gaps can only be held against each other if the same operators lie round them."""
    with pytest.raises(RuntimeError, match="not alike"):
        shares_of([*frame(0), *odd], 2)


def test_python_between_operators_is_outside() -> None:
    """A frame that does nothing between two operators has a small share, a sleeping one a large."""
    matrix = torch.ones(400, 400)

    def busy() -> None:
        for _ in range(4):
            torch.mm(matrix, matrix)

    def dozing() -> None:
        for _ in range(4):
            torch.mm(matrix, matrix)
            time.sleep(0.05)

    awake, asleep = overhead(busy, 1, 5), overhead(dozing, 1, 5)

    assert (awake.kernels, asleep.kernels) == (4, 4)
    assert awake.least_outside_share <= awake.outside_share < asleep.least_outside_share
    assert asleep.outside_share > 0.5
    assert asleep.heaviest[0][0] == "aten::mm"


def test_recording_costs_something_and_not_much() -> None:
    """What the profiler adds to an operator is microseconds."""
    assert 0 < recording_us() < 1000
