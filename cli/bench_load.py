"""``psionic-csm bench load``: how a stack stands under a load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli import show
from cli.exits import NOT_STARTED, UNREACHABLE, USAGE, CommandFailed
from cli.extras import worker_extra
from cli.reports import check_places, fail_if_missed, write, write_json, write_markdown

if TYPE_CHECKING:
    from benchmarks.load.run import Place, Plan


@dataclass(frozen=True, slots=True)
class LoadWish:
    """What was asked for on the command line."""

    url: str | None
    api_key: str | None
    seconds: float
    load: float
    overload: float | None
    rate: float | None
    mix: str
    timeouts: str
    lanes: int
    workers: int
    step_ms: float
    seed: int
    report_file: Path | None
    tables_file: Path | None
    plot_file: Path | None


def run(wish: LoadWish) -> None:
    """Load, print the tables, write the files. A missed bound is a failed command."""
    check_places(wish.report_file, wish.tables_file, wish.plot_file)
    with worker_extra("measuring"):
        from benchmarks.load import plot
        from benchmarks.load import run as bench
        from benchmarks.load.show import tables
        from benchmarks.show import print_tables
    plan = _plan(wish)
    with show.activity() as activity, _place(wish, activity) as place:
        report = bench.run(plan, place, activity)
    print_tables(tables(report), report.notes, show.out())
    write_json(report, wish.report_file)
    write_markdown(tables(report), report.notes, wish.tables_file)
    if wish.plot_file is not None:
        write(wish.plot_file, plot.svg(report))
    fail_if_missed(report.bounds)


def _plan(wish: LoadWish) -> Plan:
    from benchmarks.load.arrivals import Mix
    from benchmarks.load.run import Plan

    try:
        mix = Mix.parse(wish.mix)
        timeouts_s = tuple(float(part) for part in wish.timeouts.split(","))
    except ValueError as error:
        raise CommandFailed(USAGE, f"--mix or --timeouts: {error}") from error
    if not all(1 <= each <= 30 for each in timeouts_s):
        raise CommandFailed(USAGE, "--timeouts takes seconds from 1 to 30, as 10,20")
    return Plan(
        seconds=wish.seconds,
        load=wish.load,
        overload=wish.overload,
        rate=wish.rate,
        mix=mix,
        mix_text=wish.mix,
        timeouts_s=timeouts_s,
        seed=wish.seed,
    )


@contextmanager
def _place(wish: LoadWish, activity: show.Activity) -> Iterator[Place]:
    from benchmarks.load.run import foreign_place, own_place
    from benchmarks.target import PacedPlan
    from cli.bench_stack import paced_target

    if wish.url is None:
        plan = PacedPlan(workers=wish.workers, lanes=wish.lanes, step_ms=wish.step_ms)
        with paced_target(plan, activity.flicker) as target:
            yield own_place(plan, target)
        return
    try:
        place = foreign_place(wish.url, wish.api_key)
    except ValueError as error:
        raise CommandFailed(USAGE, f"--url: {error}") from error
    except OSError as error:
        raise CommandFailed(UNREACHABLE, f"can't reach a gateway at {wish.url}") from error
    if not place.lanes:
        raise CommandFailed(NOT_STARTED, f"no lanes are ready behind {wish.url}")
    yield place
