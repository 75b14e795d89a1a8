"""Where the audio goes: a file, whole or not at all; standard output; a pipe or a device."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from cli import streams
from cli.exits import NOT_STARTED, USAGE, CommandFailed

STDOUT_NAMES: Final = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
STDOUT: Final = 1


def is_standard_output(output: Path) -> bool:
    """Whether ``output`` names standard output, or the very file that it leads to."""
    if str(output) in STDOUT_NAMES:
        return True
    try:
        there, ours = output.stat(), os.fstat(STDOUT)
    except OSError:
        return False
    return not stat.S_ISCHR(there.st_mode) and os.path.samestat(there, ours)


def check(output: Path) -> None:
    """Finds out before anything is started that the audio could not be written after it.

    Raises CommandFailed.
    """
    if is_standard_output(output):
        streams.check_output()
        if streams.is_terminal():
            raise CommandFailed(
                USAGE, "audio is not for a terminal", hint="redirect it: ... -o - > speech.wav"
            )
        return
    check_place(output)


def check_place(output: Path) -> None:
    """As ``check``, of what is no standard output."""
    try:
        _check_place(output)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or error
        raise CommandFailed(USAGE, f"{output} can't be written to: {why}") from error


def _check_place(output: Path) -> None:
    folder = output.resolve().parent
    if output.is_dir():
        raise CommandFailed(USAGE, f"{output} is a folder", hint="name a file in it")
    if not folder.is_dir():
        if output.exists():
            return  # a pipe that has no name in any folder
        raise CommandFailed(USAGE, f"there is no folder {folder} to write {output.name} into")
    target = output if output.exists() and not output.is_file() else folder
    if not os.access(target, os.W_OK):
        raise CommandFailed(USAGE, f"{target} can't be written to")


def write(output: Path, wav: bytes) -> None:
    """The whole file or none of it; what is no file, such as a pipe, is written to as it is.

    Raises CommandFailed, and OutputGone for standard output.
    """
    if is_standard_output(output):
        streams.write_bytes(wav)
        return
    try:
        if output.exists() and not output.is_file():
            output.write_bytes(wav)
        else:
            _replace(output.resolve(), wav)
    except OSError as error:
        why = error.strerror or error
        raise CommandFailed(NOT_STARTED, f"can't write {output}: {why}") from error


def _replace(output: Path, wav: bytes) -> None:
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=output.parent, prefix=f".{output.name[:100]}.", delete=False
        ) as file:
            part = Path(file.name)
            file.write(wav)
        part.chmod(0o666 & ~_umask())
        part.replace(output)
        part = None
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink()


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
