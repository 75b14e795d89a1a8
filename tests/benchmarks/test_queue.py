"""The measurements of the queue: their arithmetic on known input, and a short run of them all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import ProcessorTime
from benchmarks.queue import rivals, run
from benchmarks.queue.bounds import judge
from benchmarks.queue.costs import Usage
from benchmarks.queue.records import Cost, Costs, Door, Host, QueueReport, Server, Tail
from benchmarks.queue.run import Plan
from benchmarks.queue.show import tables
from benchmarks.show import markdown_tables
from cli import main
from cli.exits import MISSED, OK
from tests.conftest import wait_until
from tests.e2e.stacks import demo_cache, noise

__all__ = ["demo_cache"]


def tail(value: float) -> Tail:
    return Tail(value, value, value, value, 4)


def cost(redis_us: float) -> Cost:
    return Cost(100, 5.0, 4000.0, 4100.0, redis_us / 1e6, 1e-4, 5e-5, (("xadd", 2.0),))


def report(**changes: Any) -> QueueReport:
    """Every bound is met: a frame takes 40 us of Redis, an admission 2 ms of a gateway."""
    base = QueueReport(
        host=Host("Abacus", 2, "3.11.0", "6.2", 0.1, 0.2),
        pickup_ms=tail(8.0),
        cancel_frames=tail(2.1),
        door=Door(500, 1.0, 3000, 2.0, 500),
        costs=Costs(64, cost(40.0), cost(1200.0)),
        frames_per_job=25,
        at_once=8,
        servers=(
            Server(rivals.OURS, tail(10.0), 80.0, 0.014),
            Server(rivals.RQ, tail(120.0), 7.0, 0.1),
        ),
        seconds=60.0,
        bounds=(),
        notes=(rivals.NO_MOSEC,),
    )
    return replace(base, **changes)


def test_percentiles_are_samples() -> None:
    """By nearest rank: of a hundred, the 99th is p99 and the last is the most."""
    found = Tail.of([float(number) for number in range(100, 0, -1)])

    assert found == Tail(p50=50.0, p90=90.0, p99=99.0, most=100.0, count=100)
    assert Tail.of([3.0]) == Tail(3.0, 3.0, 3.0, 3.0, 1)
    with pytest.raises(ValueError, match="nothing"):
        Tail.of([])


def test_a_core_s_streams_follow_from_a_frame_s_time() -> None:
    """40 us a frame are 0.5 ms a second of one stream; a job's own time comes on top."""
    costs = Costs(64, cost(40.0), cost(1200.0))

    assert costs.streams_per_core == pytest.approx(2000)
    # 2.4 s are 30 frames: 1.2 ms of frames and 1.2 ms of the job, in 2.4 s
    assert costs.streams_per_core_with_jobs(2.4) == pytest.approx(1000)


def test_an_idle_stack_s_use_is_taken_off() -> None:
    """What would have been used in the same time anyway is no frame's cost."""
    idle = Usage(2.0, 20, 200, 400, 0.02, 0.04, 0.06, Counter({"ping": 20}))
    busy = Usage(4.0, 140, 4400, 4800, 0.14, 0.28, 0.32, Counter({"ping": 40, "xadd": 100}))

    found = busy.beyond(idle).per(100)

    assert (found.commands, found.in_bytes, found.out_bytes) == (1.0, 40.0, 40.0)
    assert found.redis_cpu_s == pytest.approx(0.001)
    assert found.gateway_cpu_s == pytest.approx(0.002)
    assert found.worker_cpu_s == pytest.approx(0.002)
    assert found.calls == (("xadd", 1.0),)


def test_what_holds_is_met() -> None:
    """Numbers on the right side of each bound meet it; the next claim's own time is taken off."""
    assert [each.met for each in judge(report())] == [True] * 5


@pytest.mark.parametrize(
    ("missed", "changes"),
    [
        (0, {"pickup_ms": Tail(9.0, 9.0, 51.0, 51.0, 4)}),
        (1, {"door": Door(299, 1.0, 3000, 2.0, 500)}),
        (2, {"door": Door(500, 1.0, 1999, 2.0, 500)}),
        (3, {"cancel_frames": tail(2.2)}),
        (4, {"costs": Costs(64, cost(41.0), cost(1200.0))}),
    ],
)
def test_what_does_not_hold_is_missed(missed: int, changes: dict[str, Any]) -> None:
    """Each bound looks at its own number."""
    found = [each.met for each in judge(report(**changes))]

    assert found == [number != missed for number in range(5)]


def test_the_tables_say_ratios_and_limits() -> None:
    """A reader finds what was promised, what one core carries, and how others compare."""
    shown = report()
    text = markdown_tables(tables(replace(shown, bounds=judge(shown))), shown.notes)

    assert "| RQ's own worker | 120.0 (p99 120.0) | 12.00 x | 7.0 | 100.0 ms |" in text
    assert "| frames alone | 2000 |" in text
    assert "| let in to wait | 500 | 1.00 | 500 |" in text
    assert rivals.NO_MOSEC in text


@pytest.mark.e2e
@pytest.mark.redis
def test_a_short_run_measures_everything(
    demo_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command starts its stacks, measures each part, and writes what it found."""
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    short = Plan(
        pickups=3, cancels=2, admissions=40, refusals=60, streams=4, seconds=1.0, jobs=8, rounds=1
    )
    monkeypatch.setattr(run, "Plan", lambda **_: replace(short, crowd=8))
    path = tmp_path / "queue.json"

    code = main.run(["bench", "queue", "--json", str(path)])

    found = json.loads(path.read_text())
    assert code == (MISSED if any(each["met"] is False for each in found["bounds"]) else OK)
    assert found["pickup_ms"]["count"] == 3
    assert found["cancel_frames"]["p50"] > 0
    assert found["door"]["refusals"] == 60
    assert 20 <= found["costs"]["frame"]["count"] <= 200  # of four streams, in a second
    assert found["costs"]["frame"]["in_bytes"] > 3840
    assert found["costs"]["job"]["commands"] > 10
    assert [each["name"] for each in found["servers"]][:2] == [rivals.OURS, rivals.RQ]


def test_a_process_s_time_is_its_own() -> None:
    """A loop in another process shows as its time, under its name, and this one's does not."""
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\n{spin}input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        clock = ProcessorTime({"gateway": process.pid}).start()
        process.stdin.write("go\n")
        process.stdin.flush()
        wait_until(lambda: clock.stop().of("gateway") >= 0.25, 60)
        process.stdin.close()

    assert clock.used == {"gateway": clock.total}
    assert clock.of("redis") == 0
    assert clock.waited["gateway"] >= 0
