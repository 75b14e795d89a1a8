"""The ``psionic-csm`` command: arguments here, the work in modules that are imported when needed.

Exit codes: see ``cli/exits.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from cli.exits import BY_SIGNAL, NOT_STARTED, OK, USAGE, CommandFailed
from cli.signals import Interrupted, Signals
from shared.environment import SettingsError
from shared.settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    GatewaySettings,
    QueueSettings,
    read_cache_dir,
)

DEFAULT_URL: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"

app = typer.Typer(
    name="psionic-csm",
    help="Text in, speech out: runs Psionic CSM Speech on this machine, or talks to a gateway.",
    epilog=(
        "Exit codes: 0 done, 1 refused or failed by the service, 2 wrong usage, 3 gateway not "
        "reached, 4 stack not started, 5 audio not what its digests say, 130 Ctrl-C."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
artifacts_app = typer.Typer(
    help="Artifacts on this machine.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(artifacts_app, name="artifacts")
bench_app = typer.Typer(
    help="Measurements on this machine.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(bench_app, name="bench")

Url = Annotated[str, typer.Option("--url", help="The gateway.", show_default=True)]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Bearer key; default: PSIONIC_CSM_API_KEY.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ArtifactDir = Annotated[
    Path | None,
    typer.Option(
        "--artifact", help="Artifact directory, or csm-1b; default: the demo, built when missing."
    ),
]


@app.command()
def up(
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="GPU workers.")] = 1,
    lanes: Annotated[
        int | None,
        typer.Option("--lanes", min=1, max=512, help="Requests at a time in one worker."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Where the gateway listens.")] = "",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Default 8081; 0 takes a free one."),
    ] = None,
    artifact: ArtifactDir = None,
    api_key: ApiKey = None,
) -> None:
    """Run a whole stack in the foreground: Redis, scheduler, workers, gateway. Ctrl-C stops it."""
    from cli import up as command

    settings = _gateway_settings()
    command.run(
        workers=workers,
        lanes=lanes,
        host=host or settings.host,
        port=settings.port if port is None else port,
        artifact=artifact,
        api_key=_key(api_key),
    )


@app.command()
def speak(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The WAV file to write.")] = Path(
        "speech.wav"
    ),
    url: Annotated[
        str | None,
        typer.Option("--url", help="A running gateway; without it a whole stack is started."),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Take the audio as it is made, with progress.")
    ] = False,
    voice: Annotated[str | None, typer.Option("--voice", help="Voice profile id.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed, the same audio.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k")] = None,
    length_ms: Annotated[
        int | None, typer.Option("--max-length-ms", help="Longest audio; default: by the text.")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="Give up after so long.")
    ] = None,
    request_id: Annotated[
        str | None, typer.Option("--request-id", help="Idempotency key; default: a new one.")
    ] = None,
    artifact: ArtifactDir = None,
    lanes: Annotated[
        int | None, typer.Option("--lanes", min=1, max=512, help="Lanes of the stack's worker.")
    ] = None,
    api_key: ApiKey = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the stack's log on standard error.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Speak one text into a WAV file and check it against its digests."""
    from cli import speak as command

    if url is not None and (artifact is not None or lanes is not None):
        raise CommandFailed(USAGE, "--artifact and --lanes are for a stack of its own, not --url")
    command.run(
        command.Wish(
            text=_standard_input() if text == "-" else text,
            output=output,
            url=url,
            api_key=_key(api_key),
            stream=stream,
            voice=voice,
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            length_ms=length_ms,
            timeout_ms=timeout_ms,
            request_id=request_id,
            artifact=artifact,
            lanes=lanes,
            verbose=verbose,
            as_json=as_json,
        )
    )


@app.command()
def status(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show queue depth, what is in flight, waits and workers of a gateway."""
    from cli import status as command

    command.run(url, api_key=_key(api_key), as_json=as_json)


@app.command()
def voices(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List the governed voice profiles of a gateway."""
    from cli import status as command

    command.voices(url, api_key=_key(api_key), as_json=as_json)


@app.command()
def cancel(
    request_id: Annotated[str | None, typer.Option("--request-id")] = None,
    cancellation_id: Annotated[
        str | None, typer.Option("--cancellation-id", help="A voice turn: all its requests.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a request, or a whole voice turn, also before it arrives."""
    from cli import cancel as command

    if (request_id is None) == (cancellation_id is None):
        raise CommandFailed(USAGE, "give one of --request-id and --cancellation-id")
    command.run(
        url,
        request_id=request_id,
        cancellation_id=cancellation_id,
        api_key=_key(api_key),
        as_json=as_json,
    )


@app.command()
def smoke(url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Check a running gateway's main promises with a few short requests."""
    from cli import smoke as command

    command.run(url, api_key=_key(api_key))


@app.command("worker-alive", hidden=True)
def worker_alive() -> None:
    """Succeed if a worker of this host has a heartbeat: a probe for containers."""
    from cli import alive

    try:
        queue = QueueSettings.from_env()
    except SettingsError as error:
        raise CommandFailed(NOT_STARTED, str(error)) from error
    alive.run(queue)


@artifacts_app.command("build-demo")
def build_demo(
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Default: in the user's cache.")
    ] = None,
) -> None:
    """Build the demo artifact, small and seeded. Nothing is done if it is there whole."""
    from cli import artifacts, show
    from shared.governance.locations import demo_artifact_dir

    artifact = artifacts.build_here(directory or demo_artifact_dir(read_cache_dir()))
    show.facts([("artifact", artifact.artifact_id), ("directory", str(artifact.directory))])


@artifacts_app.command("list")
def list_artifacts() -> None:
    """List the artifacts that this machine is configured with or has built."""
    from cli import artifacts, show

    rows: list[tuple[str | None, Path, str | None]] = []
    for directory in artifacts.known_directories():
        try:
            rows.append((artifacts.open_artifact(directory).artifact_id, directory, None))
        except CommandFailed as failed:
            rows.append((failed.code, directory, failed.message))
    show.table(("artifact", "directory", "fault"), rows)


@artifacts_app.command("verify")
def verify_artifact(
    directory: Annotated[Path, typer.Argument(help="The artifact's directory, or csm-1b.")],
) -> None:
    """Hash every file of an artifact and compare with its manifest."""
    from cli import artifacts, show

    artifact = artifacts.open_artifact(directory)
    files = list(artifacts.verify(artifact))
    show.facts([("artifact", artifact.artifact_id)])
    show.table(
        ("file", "role", "bytes", "state", "found"),
        [(each.name, each.role, each.size, each.fault or "as stated", each.path) for each in files],
    )
    faults = [each for each in files if each.fault]
    if faults:
        raise artifacts.not_genuine(artifact, faults)


@bench_app.command("engine")
def bench_engine(
    size: Annotated[
        str, typer.Option("--size", help="full is CSM-1B's; also demo and tiny.")
    ] = "full",
    lanes: Annotated[str, typer.Option("--lanes", help="Numbers of lanes to measure.")] = "1,2,4,8",
    frames: Annotated[
        int, typer.Option("--frames", min=2, max=1000, help="Frames of each variant.")
    ] = 24,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, max=256, help="Torch threads; default: every core."),
    ] = None,
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, max=512, help="Positions of a prefill chunk.")
    ] = 32,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="bfloat16 or float32; default: bfloat16 for full."),
    ] = None,
    report_file: Annotated[
        Path | None, typer.Option("--json", help="Write all numbers to this file.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Write throughput against lanes as an SVG.")
    ] = None,
) -> None:
    """Measure the engine on seeded weights, beside transformers and the memory's own bandwidth.

    The weights are built once, in the cache directory: some 3.5 GB at full size.
    """
    from cli import bench as command

    command.run(
        command.Wish(
            size=size,
            lanes=lanes,
            frames=frames,
            threads=threads,
            chunk=chunk,
            dtype=dtype,
            report_file=report_file,
            plot_file=plot_file,
        )
    )


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run a command; every failure becomes a message on standard error and an exit code."""
    command = typer.main.get_command(app)
    try:
        with Signals() as signals, signals.raising():
            command.main(arguments, prog_name="psionic-csm")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else OK
    except CommandFailed as failed:
        from cli import show

        show.failed(failed)
        return failed.exit_code
    except Interrupted as interrupted:
        return BY_SIGNAL + interrupted.signum
    return OK


def _key(given: str | None) -> str | None:
    from cli.client import api_key_from

    return given or api_key_from()


def _gateway_settings() -> GatewaySettings:
    try:
        return GatewaySettings.from_env()
    except SettingsError as error:
        raise CommandFailed(NOT_STARTED, str(error)) from error


def _standard_input() -> str:
    return sys.stdin.read().rstrip("\n")


if __name__ == "__main__":
    main()
