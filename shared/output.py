"""Standard output as a shell, a supervisor or nobody hands it over.

It may be closed from the start, unbuffered, on a disk that gets full, or left by whoever read it.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Final

STANDARD: Final = (0, 1, 2)
ESCAPED: Final = "psionic_csm_escaped"
"""Names what becomes of characters that can't be encoded: bytes of a file's name stay as they are,
and what the encoding has no letter for is written as ``\\u2192``.
"""


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = UnicodeEncodeError(
        error.encoding, error.object, error.start, error.start + 1, error.reason
    )
    try:
        return codecs.lookup_error("surrogateescape")(first)
    except UnicodeEncodeError:
        return codecs.backslashreplace_errors(first)


codecs.register_error(ESCAPED, _escaped)


def make_whole(errors: str | None = None) -> None:
    """What is written is written whole or fails.

    Unbuffered, as ``PYTHONUNBUFFERED`` makes it, it would be written to once: a disk that is nearly
    full takes a part, and nobody hears that the rest is gone. ``errors`` is what becomes of
    characters that can't be encoded, if not what Python chose.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    errors = errors or sys.stdout.errors
    sys.stdout.reconfigure(errors=errors)
    raw: object = sys.stdout.buffer
    if isinstance(raw, io.RawIOBase):
        encoding = sys.stdout.encoding
        sys.stdout.detach()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, write_through=True)


def hold() -> None:
    """What was closed from the start leads nowhere: else the next file or connection that is opened
    gets the number, and whatever a library writes to standard error goes into it.
    """
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def settle() -> None:
    """Before the interpreter closes it: what can't be written any more is let go, so that it does
    not decide on the exit code.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        let_go()


def let_go() -> None:
    """What is still buffered goes nowhere, and the interpreter does not stumble over it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
