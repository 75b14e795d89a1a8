"""Ctrl-C and its kin: one clean way out, and a second press for those in a hurry.

A signal raises :class:`Interrupted` only inside ``raising()``. Elsewhere it is remembered, so that
start-up and shut-down of a stack are never torn in the middle.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self

WATCHED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the command to end. ``note`` is what is said of it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
        self.note = "interrupted"


class Signals:
    """Watches the signals that end a command; a context manager for the main thread."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.hurry: Callable[[], None] | None = None
        """Called by every signal once set; must be safe inside a signal handler."""
        self._raising = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for each in WATCHED:
            if each == signal.SIGHUP and signal.getsignal(each) == signal.SIG_IGN:
                continue  # started under nohup
            self._before[each] = signal.signal(each, self._on)
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """A signal in this block, or before it, raises :class:`Interrupted` here."""
        self._raising = True
        try:
            if self.received is not None:
                raise Interrupted(self.received)
            yield
        finally:
            self._raising = False

    def _on(self, signum: int, _: FrameType | None) -> None:
        first = self.received is None
        self.received = signum
        if self.hurry is not None:
            self.hurry()
        elif self._raising and first:
            raise Interrupted(signum)
