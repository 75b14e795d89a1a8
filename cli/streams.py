"""The standard streams, any of which may be closed, full, or left by whoever held the other end."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from cli.exits import NOT_STARTED, REFUSED, USAGE, CommandFailed

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
        _let_go()
        raise OutputGone from error
    except OSError as error:
        _let_go()
        raise CommandFailed(
            NOT_STARTED, f"can't write to standard output: {error.strerror}"
        ) from error


def make_whole() -> None:
    """Standard output that is written whole or fails, and that takes any file's name.

    Unbuffered, as ``PYTHONUNBUFFERED`` makes it, it would be written to once: a disk that is nearly
    full takes a part, and nobody hears that the rest is gone. A name that is no UTF-8 leaves as the
    bytes that it is.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    sys.stdout.reconfigure(errors="surrogateescape")
    raw: object = sys.stdout.buffer
    if isinstance(raw, io.RawIOBase):
        encoding = sys.stdout.encoding
        sys.stdout.detach()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding, "surrogateescape", write_through=True
        )


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


def settle() -> None:
    """Before the interpreter closes standard output: what can't be written any more is let go."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _let_go()


def _let_go() -> None:
    """What is still buffered goes nowhere, and the interpreter does not stumble over it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
