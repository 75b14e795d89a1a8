"""What the benchmarks' commands leave behind: files of numbers and tables, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cli import audio_file
from cli.exits import MISSED, CommandFailed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from benchmarks.records import Bound
    from benchmarks.show import Table


def check_places(*paths: Path | None) -> None:
    """Finds out before anything is measured that its numbers could not be written after it.

    Raises CommandFailed.
    """
    for path in paths:
        if path is not None:
            audio_file.check_place(path)


def write_json(report: DataclassInstance, path: Path | None) -> None:
    """All numbers of a report, if a file was named."""
    if path is not None:
        write(path, json.dumps(asdict(report), indent=2) + "\n")


def write_markdown(tables: Iterable[Table], notes: Iterable[str], path: Path | None) -> None:
    """The tables as they stand in a page, if a file was named."""
    from benchmarks.show import markdown_tables

    if path is not None:
        write(path, markdown_tables(tables, notes))


def write(path: Path, text: str) -> None:
    """The whole file or none of it: what was there stays when there is no room for the new one."""
    audio_file.write(path, text.encode())


def fail_if_missed(bounds: Iterable[Bound]) -> None:
    """Raises CommandFailed when a bound was judged and not met."""
    names = tuple(each.name for each in bounds if each.met is False)
    if names:
        raise CommandFailed(MISSED, "a bound was missed", details=names)
