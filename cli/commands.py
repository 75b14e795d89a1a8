"""The commands; what each does is in a module that is imported when it is called."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import artifact_commands, bench_commands, options, streams
from cli.exits import USAGE, CommandFailed
from shared.settings import DEFAULT_HOST, DEFAULT_PORT, GatewaySettings, QueueSettings

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


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("psionic-csm-speech")
        except metadata.PackageNotFoundError:
            number = "from a source tree that is not installed"
        streams.write_text(f"psionic-csm {number}\n")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Text in, speech out: runs Psionic CSM Speech on this machine, or talks to a gateway."""


@app.command(short_help="Run a whole stack on this machine.")
def up(
    workers: options.Workers = 1,
    lanes: options.Lanes = None,
    host: options.Host = "",
    port: options.Port = None,
    artifact: options.ArtifactDir = None,
    api_key: options.ApiKey = None,
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
    text: options.Text,
    output: options.WavFile = Path("speech.wav"),
    url: options.RunningUrl = None,
    stream: options.Stream = False,
    voice: options.Voice = None,
    seed: options.Seed = None,
    spell_out: options.SpellOut = False,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    length_ms: options.LengthMs = None,
    timeout_ms: options.TimeoutMs = None,
    request_id: options.IdempotencyKey = None,
    artifact_id: options.ArtifactId = None,
    artifact: options.ArtifactDir = None,
    lanes: options.OwnLanes = None,
    api_key: options.ApiKey = None,
    verbose: options.Verbose = False,
    as_json: options.AsJson = False,
) -> None:
    """Speak one text into a WAV file and check it against its digests."""
    from cli import speak as command

    if url is not None and (artifact is not None or lanes is not None):
        raise CommandFailed(USAGE, "--artifact and --lanes are for a stack of its own, not --url")
    if url is None and artifact_id is not None:
        raise CommandFailed(
            USAGE, "--artifact-id is for --url; a stack of its own takes --artifact"
        )
    command.run(
        command.Wish(
            text=streams.read_text() if text == "-" else streams.checked(text),
            output=output,
            url=url,
            api_key=_key(api_key),
            stream=stream,
            voice=voice,
            seed=seed,
            spell_out=spell_out,
            temperature=temperature,
            top_k=top_k,
            length_ms=length_ms,
            timeout_ms=timeout_ms,
            request_id=request_id,
            artifact_id=artifact_id,
            artifact=artifact,
            lanes=lanes,
            verbose=verbose,
            as_json=as_json,
        )
    )


@app.command()
def status(
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a gateway's queue, lanes, waits and workers."""
    from cli import status as command

    command.run(url, api_key=_key(api_key), as_json=as_json)


@app.command()
def voices(
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the governed voice profiles of a gateway."""
    from cli import voices as command

    command.run(url, api_key=_key(api_key), as_json=as_json)


@app.command(short_help="Cancel a request or a voice turn.")
def cancel(
    request_id: options.CancelledRequest = None,
    cancellation_id: options.CancelledTurn = None,
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
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


@app.command(short_help="Show what is known of a request.")
def evidence(
    request_id: options.RequestId,
    output: options.EvidenceFile = None,
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what is known of a request for ten minutes after it: the record to judge it by."""
    from cli import evidence as command

    command.run(url, request_id, api_key=_key(api_key), output=output, as_json=as_json)


@app.command(short_help="Say what became of a request's speech.")
def outcome(
    request_id: options.RequestId,
    outcome: options.Outcome,
    shadow: options.IsShadow = False,
    reason: options.Reason = None,
    reference: options.Reference = None,
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Say, once, what became of a request's speech. It is kept with the evidence."""
    from cli import outcome as command

    said = {
        "outcome": outcome,
        "mode": "shadow" if shadow else "live",
        "reason": reason,
        "reference": reference,
    }
    command.run(url, request_id, said, api_key=_key(api_key), as_json=as_json)


@app.command(short_help="Hold a deployment to the contract.")
def smoke(
    url: options.Url = DEFAULT_URL,
    api_key: options.ApiKey = None,
    expect: options.Expect = options.Expected.serving,
    timeout_s: options.AnswerSeconds = 40.0,
    keep_going: options.KeepGoing = False,
    report_file: options.ReportFile = None,
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
