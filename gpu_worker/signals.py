"""SIGTERM and SIGINT as a count that the loop looks at: a handler does nothing else."""

from __future__ import annotations

import atexit
import signal
from types import FrameType
from typing import Final

TAKEN: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """How often this process was told to stop: once drains, twice hands back at once."""

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        """Take both signals over. Main thread only."""
        for number in TAKEN:
            signal.signal(number, self._note)
        atexit.register(_ignore)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def _ignore() -> None:
    """An ending interpreter gives the signals back to the system, which would kill it: a process
    that drained has to exit with 0 however often it was told to.
    """
    for number in TAKEN:
        signal.signal(number, signal.SIG_IGN)
