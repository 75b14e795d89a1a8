"""A report of the queue as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.queue.records import Cost, Host, QueueReport, Tail
from benchmarks.show import Table, bounds_table


def tables(report: QueueReport) -> Iterator[Table]:
    """All that a report holds, in reading order."""
    yield Table("Machine", ("what", "value"), tuple(host_rows(report.host, report.seconds)))
    yield Table("Times", ("what", "p50", "p90", "p99", "most", "samples"), tuple(_times(report)))
    yield Table("One gateway's door", ("what", "count", "CPU s", "per CPU s"), tuple(_door(report)))
    yield Table(
        f"What one costs, {report.costs.streams} streams at once, an idle stack's use taken off",
        ("what", "frame", "job of one frame"),
        tuple(_costs(report.costs.frame, report.costs.job)),
    )
    yield Table("One core of Redis", ("streams at 12.5 frames/s", "number"), tuple(_limits(report)))
    yield Table(
        f"The same model, {report.frames_per_job} frames a job, one worker process",
        ("served by", "a lone call, ms", "to ours", f"jobs/s, {report.at_once} at once", "CPU/job"),
        tuple(_servers(report)),
    )
    yield bounds_table(report.bounds)


def host_rows(host: Host, seconds: float) -> Iterator[tuple[str, str]]:
    yield "processor", f"{host.processor}, {host.cores} cores"
    yield "versions", f"Python {host.python}, {host.redis}"
    yield (
        "load average",
        f"{host.load_average_before} before, {host.load_average_after} after",
    )
    yield "the run took", f"{seconds:.0f} s"


def tail_row(name: str, tail: Tail, digits: int = 1) -> tuple[str, ...]:
    shown = (f"{each:.{digits}f}" for each in (tail.p50, tail.p90, tail.p99, tail.most))
    return (name, *shown, str(tail.count))


def _times(report: QueueReport) -> Iterator[tuple[str, ...]]:
    yield tail_row("POST to claim, idle worker, ms", report.pickup_ms)
    yield tail_row("cancel to the lane's next claim, frames", report.cancel_frames, 2)


def _door(report: QueueReport) -> Iterator[tuple[str, ...]]:
    door = report.door
    yield (
        "let in to wait",
        str(door.admissions),
        f"{door.admission_cpu_s:.2f}",
        f"{door.admissions_per_cpu_s:.0f}",
    )
    yield (
        f"turned away, {door.waiting} waiting",
        str(door.refusals),
        f"{door.refusal_cpu_s:.2f}",
        f"{door.refusals_per_cpu_s:.0f}",
    )


def _costs(frame: Cost, job: Cost) -> Iterator[tuple[str, ...]]:
    def row(name: str, scale: float, field: str, digits: int = 1) -> tuple[str, ...]:
        shown = (getattr(each, field) * scale for each in (frame, job))
        return (name, *(f"{each:.{digits}f}" for each in shown))

    yield ("measured", str(frame.count), str(job.count))
    yield row("Redis commands, those in scripts too", 1, "commands")
    yield row("bytes to Redis", 1, "in_bytes", 0)
    yield row("bytes from Redis", 1, "out_bytes", 0)
    yield row("Redis, us", 1e6, "redis_cpu_s")
    yield row("gateway, us", 1e6, "gateway_cpu_s")
    yield row("worker, us", 1e6, "worker_cpu_s")
    yield ("commands", _calls(frame), _calls(job))


def _calls(cost: Cost) -> str:
    return ", ".join(f"{name} {calls:.2f}" for name, calls in cost.calls[:6])


def _limits(report: QueueReport) -> Iterator[tuple[str, str]]:
    costs = report.costs
    yield "frames alone", f"{costs.streams_per_core:.0f}"
    for seconds in (2.4, 6.4):
        limit = costs.streams_per_core_with_jobs(seconds)
        yield f"jobs of {seconds:g} s, one after another", f"{limit:.0f}"


def _servers(report: QueueReport) -> Iterator[tuple[str, ...]]:
    for each in report.servers:
        yield (
            each.name,
            f"{each.alone_ms.p50:.1f} (p99 {each.alone_ms.p99:.1f})",
            f"{report.over_ours(each):.2f} x",
            f"{each.jobs_per_s:.1f}",
            f"{1000 * each.cpu_s_per_job:.1f} ms",
        )
