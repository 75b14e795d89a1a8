"""A load's arithmetic on known input, and a short real load."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.arrivals import Arrival, Mix, schedule
from benchmarks.load.bounds import after_claim, judge
from benchmarks.load.estimate import judge_estimate, judge_refusals
from benchmarks.load.model import replay
from benchmarks.load.plot import svg
from benchmarks.load.records import Call, LoadReport, Phase, Process, Refused, Sample
from benchmarks.load.show import tables
from benchmarks.queue.records import Host, Tail
from benchmarks.show import markdown_tables
from cli import main
from cli.exits import MISSED, OK, UNREACHABLE, USAGE
from tests.e2e.stacks import demo_cache, noise

__all__ = ["demo_cache"]


def served(at_s: float, service_s: float = 2.0, wait_s: float = 0.0, **changes: Any) -> Call:
    """One that was let in and spoken to its end: 25 frames, a first audio 0.1 s after the claim."""
    call = Call(
        at_s=at_s,
        late_s=0.0,
        frames=25,
        timeout_s=10.0,
        status=200,
        code=None,
        finish_reason="length",
        first_audio_s=wait_s + 0.1,
        total_s=wait_s + service_s,
        queue_wait_s=wait_s,
        service_s=service_s,
        spoken_frames=25,
    )
    return replace(call, **changes)


def refused(at_s: float, code: str = "queue_full", timeout_s: float = 10.0) -> Call:
    return Call(at_s, 0.0, 25, timeout_s, 429, code, total_s=0.01)


def tail(value: float) -> Tail:
    return Tail(value, value, value, value, 4)


def phase(**changes: Any) -> Phase:
    """Ten seconds, five of them measured, in which five calls of 2 s of speech end."""
    base = Phase(
        name="steady",
        load=0.8,
        rate=1.0,
        seconds=10.0,
        warm_up_s=5.0,
        calls=tuple(served(float(at_s)) for at_s in range(10)),
        samples=(Sample(0.0, 0, 0, 0.0), Sample(5.0, 3, 2, 1.5)),
        gaps_s=tail(0.08),
        health_s=tail(0.002),
        most_depth=3,
        estimate=None,
        refused=(),
    )
    return replace(base, **changes)


def report(*phases: Phase, **changes: Any) -> LoadReport:
    base = LoadReport(
        host=Host("Abacus", 2, "3.11.0", "6.2", 0.1, 0.2),
        url="http://127.0.0.1:1",
        lanes=4,
        step_s=0.08,
        depth_bound=16,
        mix="2:1",
        timeouts_s=(10.0,),
        phases=phases or (phase(),),
        balance=(),
        seconds=20.0,
        bounds=(),
        notes=(),
    )
    return replace(base, **changes)


def test_a_mix_is_read_and_weighed() -> None:
    """Seconds become frames; the mean follows the weights."""
    mix = Mix.parse("0.8:3, 2.4:1")

    assert mix == Mix((10, 30), (3.0, 1.0))
    assert mix.mean_frames == 15


@pytest.mark.parametrize("text", ["", "2.4", "0:1", "21:1", "2.4:0", "2.4:-1", "a:b"])
def test_a_mix_that_makes_no_sense_is_refused(text: str) -> None:
    """Only lengths that a gateway takes, with weights that mean something."""
    with pytest.raises(ValueError, match=r"mix|length"):
        Mix.parse(text)


def test_arrivals_are_poisson_and_repeatable() -> None:
    """The rate is kept, gaps are as scattered as chance makes them, a seed gives the same again."""
    mix = Mix.parse("0.8:1,2.4:1")
    arrivals = schedule(50.0, 60.0, mix, (1.0, 9.0), seed=3)
    times = [each.at_s for each in arrivals]
    gaps = [later - earlier for earlier, later in pairwise(times)]

    assert arrivals == schedule(50.0, 60.0, mix, (1.0, 9.0), seed=3)
    assert len(arrivals) == pytest.approx(3000, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.15)
    assert {each.frames for each in arrivals} == {10, 30}
    assert {each.timeout_s for each in arrivals if each.frames == 10} == {1.2, 9.0}
    assert {each.timeout_s for each in arrivals if each.frames == 30} == {3.6, 9.0}


def test_a_text_fits_its_length() -> None:
    """Twelve characters a second, so that a gateway finds it speakable."""
    assert len(Arrival(0.0, 100, 10.0).text) == pytest.approx(96, abs=2)
    assert Arrival(0.0, 1, 10.0).text


def test_the_replay_is_first_in_first_out_over_lanes() -> None:
    """Two lanes, three calls at once: the third waits for the first lane that gets free."""
    calls = [served(0.0, 2.0), served(0.1, 5.0), served(0.2, 1.0), refused(0.3)]

    found = replay(calls, lanes=2)

    assert [each.wait_s for each in found] == pytest.approx([0.0, 0.0, 1.8, 2.7])
    # a refused one would have held a lane for the median time of its length, and holds none
    assert found[3].service_s == 2.0
    assert [each.wait_s for each in replay([*calls, served(0.4)], 2)][-1] == pytest.approx(2.6)


def test_a_refusal_that_could_have_been_met_is_counted() -> None:
    """Each refused call is tried alone against those who were let in."""
    calls = [
        served(0.0, 6.0),
        refused(0.1, "queue_full"),
        refused(0.2, "queue_full", timeout_s=5.0),
        refused(0.3, "deadline_unmeetable", timeout_s=3.0),
        refused(0.4, "deadline_unmeetable", timeout_s=12.0),
    ]

    found = judge_refusals(replay(calls, lanes=1))

    # The one that was served took 6 s, so each refused one would have: after a wait, 12 s in all.
    assert found == (Refused("queue_full", 2, 0), Refused("deadline_unmeetable", 2, 1))


def test_the_published_wait_is_held_against_the_true_one() -> None:
    """The last sample before a call is what it could have known."""
    samples = [Sample(0.0, 0, 0, 1.0), Sample(2.0, 0, 0, 5.0)]
    calls = [served(1.0, wait_s=2.0), served(3.0, wait_s=2.0), refused(3.0)]

    found = judge_estimate(calls, samples, replay(calls, lanes=8))

    assert found is not None
    assert (found.calls, found.mean_wait) == (2, 2.0)
    assert found.bias == pytest.approx((-1.0 + 3.0) / 2)
    assert found.mean_abs == pytest.approx(2.0)
    assert found.p90_abs == pytest.approx(3.0)
    assert found.model_bias == pytest.approx(-2.0)


def test_goodput_counts_what_ends_in_the_measured_part() -> None:
    """Ends at 5 to 10 s of calls sent at 3 to 8 s: six calls of two seconds, in five seconds."""
    found = phase()

    assert found.goodput == pytest.approx(6 / 5)
    assert found.good_speech == pytest.approx(6 * 2.0 / 5)
    spoilt = replace(found.calls[5], finish_reason="timeout", code="generation_timeout")
    worse = replace(found, calls=(*found.calls[:5], spoilt, *found.calls[6:]))
    assert worse.goodput == pytest.approx(5 / 5)
    assert (worse.spoilt, worse.overdue) == (1, 1)
    assert worse.outcomes == {"ok": 9, "generation_timeout": 1}


def test_the_time_after_the_claim_leaves_the_queue_out() -> None:
    """What a caller waited in line is no part of how fast it was served."""
    found = after_claim(phase(calls=(served(0.0, wait_s=3.0),)))

    assert found is not None
    assert found.p99 == pytest.approx(0.1)


def test_what_holds_is_met() -> None:
    """A load that was borne well meets every bound, those of an overload too."""
    assert [each.met for each in judge(report())] == [True] * 6
    assert [each.met for each in judge(report(phase(), phase(load=4.0)))] == [True] * 8


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("statuses", phase(calls=(*phase().calls, Call(1.0, 0.0, 25, 10.0, 500, "x")))),
        ("statuses", phase(calls=(*phase().calls, Call(1.0, 0.0, 25, 10.0, 0, None)))),
        (
            "let in",
            phase(calls=(*phase().calls, served(9.5, finish_reason="error", code="worker_lost"))),
        ),
        ("gaps", phase(gaps_s=tail(0.13))),
        ("goodput", phase(calls=phase().calls[:7])),
        ("first audio", phase(calls=tuple(replace(c, first_audio_s=0.3) for c in phase().calls))),
        ("queue depth", phase(most_depth=17)),
        ("/health", phase(health_s=tail(0.2))),
    ],
)
def test_what_does_not_hold_is_missed(name: str, last: Phase) -> None:
    """Each bound looks at its own number, and no other is missed with it."""
    found = judge(report(phase(), last))

    assert [each.name.startswith(name) for each in found if each.met is False] == [True]


def test_books_that_do_not_balance_are_a_missed_bound() -> None:
    """A lost job fails the run even if every caller was served; without a look nothing is said."""
    lost = judge(report(balance=("j1 is running, not in the set",)))[-1]

    assert (lost.name, lost.met) == ("the books afterwards", False)
    assert len(judge(report(balance=None))) == 5


def test_tables_and_picture_show_the_phases() -> None:
    """A reader finds outcomes, percentiles, the estimate and the refusals; the picture has both."""
    overload = phase(
        name="overload",
        load=4.0,
        calls=(*phase().calls, refused(3.0)),
        refused=(Refused("queue_full", 1, 1),),
        processes=(Process("gateway", 0.25, 0.5),),
    )
    whole = report(phase(name="at capacity", load=1.0), overload)
    text = markdown_tables(tables(replace(whole, bounds=judge(whole))), ())

    assert "| overload, 4 x | 1.1 | 1.2 | 2.4 | 3 | ok 10, queue_full 1 |" in text
    assert "| overload | queue_full | 1 | 1 | 100% |" in text
    assert "| overload | gateway | 25.0% | 50.0% |" in text
    assert "| at capacity: first audio | 0.100 | 0.100 | 0.100 | 0.100 | 10 |" in text
    drawn = svg(whole)
    assert drawn.startswith("<svg")
    assert drawn.count("<polyline") == 1 + 2 + 4


@pytest.mark.parametrize(
    "arguments",
    [["--mix", "nonsense"], ["--timeouts", "0"], ["--timeouts", "x"], ["--url", "https://there"]],
)
def test_wrong_usage_starts_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A mix or a timeout that there is none of is refused at once."""
    assert main.run(["bench", "load", *arguments]) == USAGE
    assert arguments[0] in capsys.readouterr().err


def test_a_gateway_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the address that nobody answers at."""
    assert main.run(["bench", "load", "--url", "http://127.0.0.1:9"]) == UNREACHABLE
    assert "127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.redis
def test_a_short_overload_is_measured(
    demo_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack is started, filled beyond its lanes, and its books balance afterwards."""
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    written, picture = tmp_path / "load.json", tmp_path / "load.svg"
    arguments = ["bench", "load", "--seconds", "3", "--overload", "6", "--lanes", "2"]
    arguments += ["--step-ms", "20", "--mix", "0.4:1,0.8:1", "--timeouts", "10"]
    files = ["--json", str(written), "--plot", str(picture), "--markdown", str(tmp_path / "t.md")]

    code = main.run([*arguments, *files])

    found = json.loads(written.read_text())
    assert code == (MISSED if any(each["met"] is False for each in found["bounds"]) else OK)
    first, second = found["phases"]
    assert (first["load"], second["load"]) == (1.0, 6.0)
    assert any(call["status"] == 200 and call["first_audio_s"] for call in first["calls"])
    assert any(call["code"] == "queue_full" for call in second["calls"])
    assert 8 < second["most_depth"] <= found["depth_bound"] == 16
    assert found["balance"] == []
    assert second["estimate"]["calls"] > 0
    assert {each["name"] for each in second["processes"]} >= {"redis", "gateway", "worker-1"}
    assert picture.read_text().startswith("<svg")
    assert "### Phases" in (tmp_path / "t.md").read_text()
