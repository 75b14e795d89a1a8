"""``psionic-csm bench queue``: what the queue costs on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cli import show
from cli.exits import NOT_STARTED, CommandFailed
from cli.extras import worker_extra
from cli.reports import check_places, fail_if_missed, write_json, write_markdown


@dataclass(frozen=True, slots=True)
class QueueWish:
    """What was asked for on the command line."""

    seconds: float
    streams: int
    report_file: Path | None
    tables_file: Path | None


def run(wish: QueueWish) -> None:
    """Measure, print the tables, write the files. A missed bound is a failed command."""
    check_places(wish.report_file, wish.tables_file)
    with worker_extra("measuring"):
        from benchmarks.queue import run as bench
        from benchmarks.queue.asking import NotServed
        from benchmarks.queue.show import tables
        from benchmarks.show import print_tables
        from cli.bench_stack import paced_target
    plan = bench.Plan(streams=wish.streams, seconds=wish.seconds)
    try:
        with show.activity() as activity:
            report = bench.run(plan, lambda each: paced_target(each, activity.flicker), activity)
    except (NotServed, TimeoutError) as error:
        raise CommandFailed(NOT_STARTED, f"the stack did not serve: {error}") from error
    print_tables(tables(report), report.notes, show.out())
    write_json(report, wish.report_file)
    write_markdown(tables(report), report.notes, wish.tables_file)
    fail_if_missed(report.bounds)
