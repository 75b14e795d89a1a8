"""What the benchmarks' commands leave behind: files of numbers and tables, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cli.exits import MISSED, NOT_STARTED, CommandFailed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from benchmarks.records import Bound
    from benchmarks.show import Table


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
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(NOT_STARTED, f"can't write {path}: {error.strerror}") from error


def fail_if_missed(bounds: Iterable[Bound]) -> None:
    """Raises CommandFailed when a bound was judged and not met."""
    names = tuple(each.name for each in bounds if each.met is False)
    if names:
        raise CommandFailed(MISSED, "a bound was missed", details=names)
