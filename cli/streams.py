"""The standard streams, any of which may be closed, full, or left by whoever held the other end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cli.exits import NOT_STARTED, REFUSED, USAGE, CommandFailed
from shared.output import let_go

MAX_TEXT_BYTES: Final = 64 * 1024
"""More than any gateway takes: reading goes no further."""


class OutputGone(Exception):
    """Whoever read standard output is gone: nothing is left to be done or said."""


@contextmanager
def answering() -> Iterator[None]:
    """Writing to standard output. Raises OutputGone, or CommandFailed if it can't be written."""
    try:
        yield
    except BrokenPipeError as error:
        let_go()
        raise OutputGone from error
    except OSError as error:
        let_go()
        raise CommandFailed(
            NOT_STARTED, f"can't write to standard output: {error.strerror}"
        ) from error


def write_text(text: str) -> None:
    """Whole lines of an answer."""
    if sys.stdout is not None:
        with answering():
            sys.stdout.write(text)
            sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """An answer that is no text."""
    check_output()
    with answering():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def check_output() -> None:
    """Raises CommandFailed when there is no standard output."""
    if sys.stdout is None:
        raise CommandFailed(USAGE, "standard output is closed")


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def read_text() -> str:
    """Standard input as UTF-8, without its last line end. Raises CommandFailed."""
    if sys.stdin is None:
        raise CommandFailed(USAGE, "standard input is closed: there is no text to read")
    try:
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise CommandFailed(NOT_STARTED, f"can't read standard input: {error.strerror}") from error
    if len(data) > MAX_TEXT_BYTES:
        raise CommandFailed(
            REFUSED, f"the text is longer than {MAX_TEXT_BYTES} bytes", code="input_too_long"
        )
    return checked(data.decode("utf-8", "surrogateescape").rstrip("\r\n"))


def checked(text: str) -> str:
    """The text, if it was UTF-8 where it came from. Raises CommandFailed."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CommandFailed(REFUSED, "the text is not UTF-8", code="invalid_input_text") from error
    return text
