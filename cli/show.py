"""What people see: facts in aligned lines, tables, and a progress line on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.exits import CommandFailed


def out() -> Console:
    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def failed(failure: CommandFailed) -> None:
    console = err()
    head, *rest = failure.lines
    console.print(Text(head, style="bold red"))
    for line in rest:
        console.print(Text(line))


def facts(rows: Sequence[tuple[str, str | None]], console: Console | None = None) -> None:
    """Labels and values, one pair a line; a value of None is left out."""
    shown = [(label, value) for label, value in rows if value is not None]
    width = max(len(label) for label, _ in shown)
    for label, value in shown:
        line = Text.assemble((label.ljust(width + 2), "dim"), value)
        (console or out()).print(line)


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


def is_terminal() -> bool:
    return sys.stdout.isatty()
