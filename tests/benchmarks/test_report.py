"""What a report says of its bounds, in its tables and in its picture."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks import plot, show
from benchmarks.bounds import judge
from benchmarks.records import Lanes, Report, Subject
from benchmarks.timing import take_turns, warmed
from tests.benchmarks.records import at, report


def verdicts(of: Report) -> dict[str, bool | None]:
    return {bound.name.split(":")[0] + bound.promised: bound.met for bound in judge(of)}


def test_every_bound_holds_on_the_good_run() -> None:
    """Numbers inside every bound are met, all of them."""
    assert set(verdicts(report()).values()) == {True}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lanes", (Lanes(1, at(0.51), at(0.01)), report().lanes[1])),
        ("lanes", (report().lanes[0], Lanes(8, at(0.67), at(0.04)))),
        ("first_audio", replace(report().first_audio, prompted_s=at(0.58))),
        ("loading", replace(report().loading, peak_rss_bytes=1300)),
        ("loading", replace(report().loading, read_bytes=1600)),
        ("join", replace(report().join, joining_frames=15)),
        ("overhead", replace(report().overhead, outside_share=0.05)),
    ],
)
def test_each_bound_can_break_alone(field: str, value: object) -> None:
    """One number outside its bound breaks that bound and no other."""
    found = list(verdicts(report(**{field: value})).values())

    assert found.count(False) == 1
    assert found.count(True) == len(found) - 1


def test_another_size_is_not_judged() -> None:
    """Bounds were set for CSM-1B's size in bfloat16: a tiny model's numbers meet nothing."""
    tiny = report(subject=replace(report().subject, size="tiny"))
    exact = report(subject=replace(report().subject, dtype="float32"))

    assert set(verdicts(tiny).values()) == {None}
    assert set(verdicts(exact).values()) == {None}


def test_what_was_not_measured_is_not_judged() -> None:
    """Without transformers there is no ratio, met or not."""
    found = list(verdicts(report(oracle=())).values())

    assert found.count(None) == 2
    assert False not in found


def written(measured: Report) -> str:
    return show.markdown_tables(show.tables(measured), measured.notes)


def test_tables_show_medians_spread_and_verdicts() -> None:
    """The Markdown holds what the bounds are judged by."""
    measured = report()
    text = written(replace(measured, bounds=judge(measured)))

    assert "| 8 lanes | 0.640 [0.640, 0.640] | 12.50 | 8.00 | 12.5 | 62% | 6.25 x |" in text
    assert "| transformers, batch 4 | 0.800 [0.800, 0.800] | 5.00 |" in text
    assert "NOT MET" not in text
    assert text.count("| met |") == len(judge(measured))


def test_a_broken_bound_is_shouted() -> None:
    """Nobody overlooks a bound that was not met."""
    slow = report(overhead=replace(report().overhead, outside_share=0.2))

    assert "| 2.0% to 20.0% | NOT MET |" in written(replace(slow, bounds=judge(slow)))


def test_the_picture_is_an_svg_with_every_point() -> None:
    """One mark per measured number of lanes and batch, whatever the processor is called."""
    subject: Subject = replace(report().subject, size="a<b")
    picture = ElementTree.fromstring(plot.svg(report(subject=subject)))

    assert picture.tag.endswith("svg")
    assert len(picture.findall("{*}circle")) == 4


def test_a_warmed_turn_does_not_count_its_first_call() -> None:
    """What another variant left in the caches is not held against this one."""
    calls: list[None] = []

    assert len(warmed(lambda: calls.append(None), 2)()) == 2
    assert len(calls) == 3


def test_turns_alternate_their_order() -> None:
    """Every second round runs backwards, so that a drift favours neither variant."""
    order: list[str] = []

    def turn(name: str) -> list[float]:
        order.append(name)
        return [1.0]

    samples = take_turns({"a": lambda: turn("a"), "b": lambda: turn("b")}, 3)

    assert order == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1.0] * 3, "b": [1.0] * 3}
