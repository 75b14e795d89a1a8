"""What commands import only where they need it, and what is said where it isn't installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cli.exits import NOT_STARTED, CommandFailed

WORKER_EXTRA: Final = "pip install 'psionic-csm-speech[worker]'"


@contextmanager
def worker_extra(doing: str) -> Iterator[None]:
    """Around imports of what only a worker needs. Raises CommandFailed if they can't be had."""
    try:
        yield
    except ImportError as error:
        raise CommandFailed(
            NOT_STARTED, f"{doing} needs what a worker needs ({error})", hint=WORKER_EXTRA
        ) from error
