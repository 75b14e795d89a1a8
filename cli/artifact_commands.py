"""``psionic-csm artifacts``: the arguments; ``cli/artifacts.py`` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exits import CommandFailed

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]

app = typer.Typer(help="Artifacts on this machine.", no_args_is_help=True, rich_markup_mode=None)


@app.command("build-demo")
def build_demo(
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Default: in the user's cache.")
    ] = None,
    seeded: Annotated[
        bool, typer.Option("--seeded", help="The one that speaks noise, built here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the demo artifact on this machine. Nothing is done if it is there whole."""
    from cli import demo, show

    artifact = demo.put(directory or demo.default_dir(seeded), seeded)
    show.facts_or_json(
        {"artifact": artifact.artifact_id, "directory": str(artifact.directory)}, as_json
    )


@app.command("list")
def list_artifacts(as_json: AsJson = False) -> None:
    """List the artifacts that this machine is configured with or has built."""
    from cli import artifacts, show

    rows: list[tuple[str | None, Path, str | None]] = []
    for directory in artifacts.known_directories():
        try:
            rows.append((artifacts.open_artifact(directory).artifact_id, directory, None))
        except CommandFailed as failed:
            rows.append((failed.code, directory, failed.message))
    show.table_or_json(("artifact", "directory", "fault"), rows, as_json)


@app.command("verify")
def verify_artifact(
    directory: Annotated[Path, typer.Argument(help="The artifact's directory, or csm-1b.")],
    as_json: AsJson = False,
) -> None:
    """Hash every file of an artifact and compare with its manifest."""
    from cli import artifacts, show

    artifact = artifacts.open_to_verify(directory)
    files = list(artifacts.verify(artifact))
    if not as_json:
        show.facts([("artifact", artifact.artifact_id)])
    show.table_or_json(
        ("file", "role", "bytes", "state", "found"),
        [(each.name, each.role, each.size, each.fault or "as stated", each.path) for each in files],
        as_json,
    )
    faults = [each for each in files if each.fault]
    if faults:
        raise artifacts.not_genuine(artifact, faults)


@app.command("quantize")
def quantize_artifact(
    source: Annotated[Path, typer.Argument(help="The artifact's directory, or csm-1b.")],
    target: Annotated[Path, typer.Argument(help="Where the new one goes; must not exist.")],
    bits: Annotated[int, typer.Option("--bits", help="Bits of a weight: 8.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Make an artifact with int8 weights from another. It has an id and codes of its own."""
    from cli import artifacts, show

    artifact = artifacts.quantize_here(source, target, bits)
    facts = {
        "artifact": artifact.artifact_id,
        "parent": artifact.manifest.parent_artifact_id,
        "quantization": artifact.manifest.quantization,
        "directory": str(artifact.directory),
    }
    show.facts_or_json(facts, as_json)


@app.command("compare")
def compare_artifacts(
    parent: Annotated[Path, typer.Argument(help="The parent's directory, or csm-1b.")],
    child: Annotated[Path, typer.Argument(help="The directory of one that was made from it.")],
    frames: Annotated[
        int, typer.Option("--frames", min=1, max=125, help="Frames of each of twenty prompts.")
    ] = 12,
    dtype: Annotated[
        str, typer.Option("--dtype", help="bfloat16 or float32, of what isn't quantized.")
    ] = "float32",
    as_json: AsJson = False,
) -> None:
    """Say how far an artifact speaks as its parent does: code by code, on this machine's CPU."""
    from cli import artifacts, show

    with show.activity() as activity:
        found = artifacts.compare_here(parent, child, frames, dtype, activity)
    if as_json:
        show.document(found)
    else:
        show.facts([(name.replace("_", " "), str(value)) for name, value in found.items()])
