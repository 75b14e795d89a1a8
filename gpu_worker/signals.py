"""The signals to stop as a count that the loop looks at: a handler does nothing else."""

from __future__ import annotations

import atexit
import signal
from types import FrameType

from shared.signals import STOP, stop_signals


class StopSignals:
    """How often this process was told to stop: once drains, twice hands back at once."""

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        """Take them over. Main thread only."""
        for number in stop_signals():
            signal.signal(number, self._note)
        atexit.register(_ignore)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def _ignore() -> None:
    """An ending interpreter gives the signals back to the system, which would kill it: a process
    that drained has to exit with 0 however often it was told to.
    """
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)
