"""The commands' arguments; the work is in modules that are imported when needed."""

from __future__ import annotations

from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import artifact_commands, bench_commands, streams
from cli.exits import USAGE, CommandFailed
from shared.settings import DEFAULT_HOST, DEFAULT_PORT, GatewaySettings, QueueSettings


class Expected(StrEnum):
    """What ``smoke`` finds if all is well."""

    serving = "serving"
    disabled = "disabled"


DEFAULT_URL: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"

app = typer.Typer(
    name="psionic-csm",
    help="Text in, speech out: runs Psionic CSM Speech on this machine, or talks to a gateway.",
    epilog=(
        "Exit codes: 0 done, 1 refused or failed by the service, 2 wrong usage, 3 gateway not "
        "reached, 4 not possible on this machine (settings, files, artifacts, a stack that does "
        "not start), 5 an answer is not what its digests or the contract say, 6 a benchmark missed "
        "a bound, 130 Ctrl-C (0 for up), 141 the output's reader is gone."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(artifact_commands.app, name="artifacts")
app.add_typer(bench_commands.app, name="bench")

Url = Annotated[str, typer.Option("--url", help="The gateway.", show_default=True)]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Bearer key; default: PSIONIC_CSM_API_KEY.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
ArtifactDir = Annotated[
    Path | None,
    typer.Option(
        "--artifact", help="Artifact directory, or csm-1b; default: the demo, built when missing."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("psionic-csm-speech")
        except metadata.PackageNotFoundError:
            number = "from a source tree that is not installed"
        streams.write_text(f"psionic-csm {number}\n")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Text in, speech out: runs Psionic CSM Speech on this machine, or talks to a gateway."""


@app.command(short_help="Run a whole stack on this machine.")
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
    """Run a whole stack in the foreground: Redis, scheduler, workers, gateway.

    Ctrl-C or SIGTERM stops it in order, and the exit code is 0; a second one stops it at once.
    """
    from cli import up as command

    settings = GatewaySettings.from_env()
    command.run(
        workers=workers,
        lanes=lanes,
        host=host or settings.host,
        port=settings.port if port is None else port,
        artifact=artifact,
        api_key=_key(api_key),
    )


@app.command(short_help="Speak one text into a WAV file.")
def speak(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The WAV file to write; - is standard output."),
    ] = Path("speech.wav"),
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
            text=streams.read_text() if text == "-" else streams.checked(text),
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
    """Show a gateway's queue, lanes, waits and workers."""
    from cli import status as command

    command.run(url, api_key=_key(api_key), as_json=as_json)


@app.command()
def voices(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List the governed voice profiles of a gateway."""
    from cli import status as command

    command.voices(url, api_key=_key(api_key), as_json=as_json)


@app.command(short_help="Cancel a request or a voice turn.")
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


RequestId = Annotated[str, typer.Argument(help="The request's id.", show_default=False)]


@app.command(short_help="Show what is known of a request.")
def evidence(
    request_id: RequestId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to a file, as JSON.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show what is known of a request for ten minutes after it: the record to judge it by."""
    from cli import evidence as command

    command.run(url, request_id, api_key=_key(api_key), output=output, as_json=as_json)


@app.command(short_help="Say what became of a request's speech.")
def outcome(
    request_id: RequestId,
    outcome: Annotated[
        str, typer.Argument(help="accepted, rejected, fallback_used or not_played.")
    ],
    shadow: Annotated[bool, typer.Option("--shadow", help="Nobody was meant to hear it.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="A code of your own: a-z 0-9 _")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Where your own records have it.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Say, once, what became of a request's speech. It is kept with the evidence."""
    from cli import evidence as command

    said = {
        "outcome": outcome,
        "mode": "shadow" if shadow else "live",
        "reason": reason,
        "reference": reference,
    }
    command.judge(url, request_id, said, api_key=_key(api_key), as_json=as_json)


@app.command(short_help="Hold a deployment to the contract.")
def smoke(
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    expect: Annotated[
        Expected, typer.Option("--expect", help="What it should be; disabled: refusing to speak.")
    ] = Expected.serving,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, max=600, help="Seconds that one answer may take.")
    ] = 40.0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Run every check, whatever fails.")
    ] = False,
    report_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the report; - is standard output."),
    ] = None,
) -> None:
    """Hold a running deployment to the contract with short requests, check by check.

    Stops at the first promise that is broken (exit code 5), at a refusal for want of capacity (1),
    or when nobody answers (3).
    """
    from cli import smoke as command

    command.run(
        command.Wish(
            url=url,
            api_key=_key(api_key),
            expect=expect.value,
            timeout_s=timeout_s,
            keep_going=keep_going,
            report_file=report_file,
        )
    )


@app.command("worker-alive", hidden=True)
def worker_alive() -> None:
    """Succeed if a worker of this host has a heartbeat: a probe for containers."""
    from cli import alive

    alive.run(QueueSettings.from_env())


def command() -> Any:
    """The whole command, to be called with arguments."""
    return typer.main.get_command(app)


def _key(given: str | None) -> str | None:
    from cli.client import api_key_from

    return given or api_key_from()
