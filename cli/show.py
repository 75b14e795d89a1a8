"""What people see: facts in aligned lines, tables, and a progress line on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli import streams
from cli.exits import CommandFailed


class Answer(Console):
    """Standard output, for what a command was asked for. See ``streams.answering``."""

    def print(self, *objects: Any, **options: Any) -> None:
        with streams.answering():
            super().print(*objects, **options)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def out() -> Console:
    return Answer(highlight=False, soft_wrap=True)


def err() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def failed(failure: CommandFailed) -> None:
    console = err()
    head, *rest = failure.lines
    with suppress(OSError):  # nobody is left who could be told
        console.print(Text(head, style="bold red"))
        for line in rest:
            console.print(Text(line))


def document(value: Any, console: Console | None = None) -> None:
    """A JSON document, the same whatever reads it."""
    (console or out()).print(Text(json.dumps(value, indent=2)))


def facts(
    rows: Sequence[tuple[str, str | None]], console: Console | None = None, *, width: int = 0
) -> None:
    """Labels and values, one pair a line; a value of None is left out."""
    shown = [(label, value) for label, value in rows if value is not None]
    width = max(width, *(len(label) for label, _ in shown))
    for label, value in shown:
        line = Text.assemble((label.ljust(width + 2), "dim"), value)
        (console or out()).print(line)


def facts_or_json(values: Mapping[str, str | None], as_json: bool) -> None:
    if as_json:
        document(dict(values))
    else:
        facts(list(values.items()))


def table_or_json(columns: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    """The rows as a table, or as JSON objects with the columns for keys."""
    if as_json:
        plain = [[str(cell) if isinstance(cell, Path) else cell for cell in row] for row in rows]
        document([dict(zip(columns, row, strict=True)) for row in plain])
    else:
        table(columns, rows)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        shown.add_column(column, no_wrap=True)
    for row in rows:
        shown.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    console = out()
    if not console.is_terminal:
        console.width = 400  # for a file or a pipe: never cut
    console.print(shown)


class Activity:
    """One line that says what is going on; plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else None
        self._last = ""

    def __call__(self, text: str) -> None:
        """Replace the line. On a pipe only whole new states are printed."""
        if self._status is not None:
            self._status.update(text)
        elif text != self._last:
            self._console.print(Text(f"... {text}"))
        self._last = text

    def note(self, rows: Sequence[tuple[str, str | None]]) -> None:
        """Labels and values that stay, above the line."""
        facts(rows, self._console)

    def flicker(self, text: str) -> None:
        """As a call, for numbers that change quickly: shown on a terminal only."""
        if self._status is not None:
            self._status.update(text)

    def start(self) -> None:
        if self._status is not None:
            self._status.start()

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()


@contextmanager
def activity() -> Iterator[Activity]:
    """Shown on stderr, so that stdout carries only the answer."""
    line = Activity(err())
    line.start()
    try:
        yield line
    finally:
        line.stop()
