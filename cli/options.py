"""The arguments and options of the commands, each with its bounds and its help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Expected(StrEnum):
    """What ``smoke`` finds if all is well."""

    serving = "serving"
    disabled = "disabled"


Url = Annotated[str, typer.Option("--url", help="The gateway.", show_default=True)]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Bearer key; default: PSIONIC_CSM_API_KEY.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]
RequestId = Annotated[str, typer.Argument(help="The request's id.", show_default=False)]

Workers = Annotated[int, typer.Option("--workers", min=1, max=64, help="GPU workers.")]
Lanes = Annotated[
    int | None,
    typer.Option("--lanes", min=1, max=512, help="Requests at a time in one worker."),
]
Host = Annotated[str, typer.Option("--host", help="Where the gateway listens.")]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Default 8081; 0 takes a free one."),
]
ArtifactDir = Annotated[
    Path | None,
    typer.Option(
        "--artifact", help="Artifact directory, or csm-1b; default: the demo, built when missing."
    ),
]

Text = Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")]
WavFile = Annotated[
    Path, typer.Option("--output", "-o", help="The WAV file to write; - is standard output.")
]
RunningUrl = Annotated[
    str | None,
    typer.Option("--url", help="A running gateway; without it a whole stack is started."),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="Take the audio as it is made, with progress.")
]
Voice = Annotated[str | None, typer.Option("--voice", help="Voice profile id.")]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed, the same audio.")]
SpellOut = Annotated[
    bool, typer.Option("--spell-out", help="Say numbers, dates and the like in English words.")
]
Temperature = Annotated[float | None, typer.Option("--temperature")]
TopK = Annotated[int | None, typer.Option("--top-k")]
LengthMs = Annotated[
    int | None, typer.Option("--max-length-ms", help="Longest audio; default: by the text.")
]
TimeoutMs = Annotated[int | None, typer.Option("--timeout-ms", help="Give up after so long.")]
ArtifactId = Annotated[
    str | None,
    typer.Option(
        "--artifact-id",
        help="With --url: one that it serves beside its default, by id or the weights' digest.",
    ),
]
IdempotencyKey = Annotated[
    str | None, typer.Option("--request-id", help="Idempotency key; default: a new one.")
]
OwnLanes = Annotated[
    int | None, typer.Option("--lanes", min=1, max=512, help="Lanes of the stack's worker.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the stack's log on standard error.")
]

CancelledRequest = Annotated[str | None, typer.Option("--request-id")]
CancelledTurn = Annotated[
    str | None, typer.Option("--cancellation-id", help="A voice turn: all its requests.")
]

EvidenceFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write it to a file, as JSON.")
]
Outcome = Annotated[str, typer.Argument(help="accepted, rejected, fallback_used or not_played.")]
IsShadow = Annotated[bool, typer.Option("--shadow", help="Nobody was meant to hear it.")]
Reason = Annotated[str | None, typer.Option("--reason", help="A code of your own: a-z 0-9 _")]
Reference = Annotated[
    str | None, typer.Option("--reference", help="Where your own records have it.")
]

Expect = Annotated[
    Expected, typer.Option("--expect", help="What it should be; disabled: refusing to speak.")
]
AnswerSeconds = Annotated[
    float, typer.Option("--timeout", min=1, max=600, help="Seconds that one answer may take.")
]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Run every check, whatever fails.")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the report; - is standard output."),
]
