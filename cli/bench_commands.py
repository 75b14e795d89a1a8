"""``psionic-csm bench``: the arguments; ``cli/bench_*.py`` do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ReportFile = Annotated[Path | None, typer.Option("--json", help="Write all numbers to this file.")]
TablesFile = Annotated[
    Path | None, typer.Option("--markdown", help="Write the tables to this file.")
]
EnginePlot = Annotated[
    Path | None, typer.Option("--plot", help="Write throughput against lanes as an SVG.")
]
LoadPlot = Annotated[
    Path | None, typer.Option("--plot", help="Write depth and latencies as an SVG.")
]

Size = Annotated[str, typer.Option("--size", help="full is CSM-1B's; also demo and tiny.")]
ArtifactDir = Annotated[
    Path | None, typer.Option("--artifact", help="Measure the artifact in this directory instead.")
]
LaneNumbers = Annotated[str, typer.Option("--lanes", help="Numbers of lanes to measure.")]
Frames = Annotated[int, typer.Option("--frames", min=2, max=1000, help="Frames of each variant.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, max=256, help="Torch threads; default: every core."),
]
Chunk = Annotated[
    int, typer.Option("--chunk", min=1, max=512, help="Positions of a prefill chunk.")
]
Dtype = Annotated[
    str | None, typer.Option("--dtype", help="bfloat16 or float32; default: bfloat16 for full.")
]

RedisUrl = Annotated[
    str | None, typer.Option("--redis-url", help="Default: as the service's processes.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", help="Default: as the service's processes.")
]
Settle = Annotated[
    float,
    typer.Option("--settle", min=0, max=600, help="Seconds that a passing difference may last."),
]

StreamSeconds = Annotated[
    float, typer.Option("--seconds", min=1, max=16, help="How long the streams are measured.")
]
Streams = Annotated[
    int, typer.Option("--streams", min=1, max=512, help="Streams at once, one lane each.")
]

Url = Annotated[
    str | None, typer.Option("--url", help="A gateway to load; default: a stack started for it.")
]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="Default: PSIONIC_CSM_API_KEY.")]
PhaseSeconds = Annotated[float, typer.Option("--seconds", min=1, max=86_400, help="Of each phase.")]
Load = Annotated[
    float, typer.Option("--load", min=0.01, max=100, help="Over what the lanes can speak.")
]
Overload = Annotated[
    float | None,
    typer.Option(
        "--overload", min=1, max=100, help="A phase at capacity, then one at so many times it."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.01, help="Calls a second, in the place of --load."),
]
Mix = Annotated[str, typer.Option("--mix", help="Lengths in seconds and their weights.")]
Timeouts = Annotated[str, typer.Option("--timeouts", help="Seconds; each call has one of them.")]
Lanes = Annotated[
    int, typer.Option("--lanes", min=1, max=512, help="Of each worker of the own stack.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=64, help="Of the own stack.")]
StepMs = Annotated[
    float, typer.Option("--step-ms", min=1, max=1000, help="A frame's time in a lane.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of arrivals and lengths.")]

app = typer.Typer(help="Measurements on this machine.", no_args_is_help=True, rich_markup_mode=None)


@app.command("engine")
def bench_engine(
    size: Size = "full",
    artifact: ArtifactDir = None,
    lanes: LaneNumbers = "1,2,4,8",
    frames: Frames = 24,
    threads: Threads = None,
    chunk: Chunk = 32,
    dtype: Dtype = None,
    report_file: ReportFile = None,
    plot_file: EnginePlot = None,
) -> None:
    """Measure the engine on seeded weights, beside transformers and the memory's own bandwidth.

    The weights are built once, in the cache directory: some 3.5 GB at full size.
    """
    from cli import bench_engine as command

    command.run(
        command.EngineWish(
            size=size,
            artifact=artifact,
            lanes=lanes,
            frames=frames,
            threads=threads,
            chunk=chunk,
            dtype=dtype,
            report_file=report_file,
            plot_file=plot_file,
        )
    )


@app.command("check")
def bench_check(
    redis_url: RedisUrl = None, namespace: Namespace = None, settle_s: Settle = 10.0
) -> None:
    """Prove from outside that a running deployment's books balance; exit code 1 when they don't.

    Every live job in exactly one set, counters equal to what they count, workers' lanes against
    leases, gateways' callers against listeners. Reads only.
    """
    from cli import bench_check as command

    command.run(redis_url, namespace, settle_s)


@app.command("queue")
def bench_queue(
    seconds: StreamSeconds = 12.0,
    streams: Streams = 64,
    report_file: ReportFile = None,
    tables_file: TablesFile = None,
) -> None:
    """Measure what the queue costs, over engines that compute nothing. Two minutes.

    Ends with code 6 when a bound is missed.
    """
    from cli import bench_queue as command

    command.run(
        command.QueueWish(
            seconds=seconds, streams=streams, report_file=report_file, tables_file=tables_file
        )
    )


@app.command("load")
def bench_load(
    url: Url = None,
    api_key: ApiKey = None,
    seconds: PhaseSeconds = 60.0,
    load: Load = 0.8,
    overload: Overload = None,
    rate: Rate = None,
    mix: Mix = "0.8:3,2.4:5,6.4:2",
    timeouts: Timeouts = "10,20",
    lanes: Lanes = 32,
    workers: Workers = 1,
    step_ms: StepMs = 80.0,
    seed: Seed = 1,
    report_file: ReportFile = None,
    tables_file: TablesFile = None,
    plot_file: LoadPlot = None,
) -> None:
    """Load a stack with Poisson arrivals and say how it stood: latencies, goodput, refusals.

    The own stack's engines compute nothing. Ends with code 6 when a bound is missed.
    """
    from cli import bench_load as command
    from cli.client import api_key_from

    command.run(
        command.LoadWish(
            url=url,
            api_key=api_key or api_key_from(),
            seconds=seconds,
            load=load,
            overload=overload,
            rate=rate,
            mix=mix,
            timeouts=timeouts,
            lanes=lanes,
            workers=workers,
            step_ms=step_ms,
            seed=seed,
            report_file=report_file,
            tables_file=tables_file,
            plot_file=plot_file,
        )
    )
