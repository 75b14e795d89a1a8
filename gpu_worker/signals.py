"""SIGTERM and SIGINT as a count that the loop looks at: a handler does nothing else."""

from __future__ import annotations

import signal
from types import FrameType


class StopSignals:
    """How often this process was told to stop: once drains, twice hands back at once."""

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        """Take both signals over. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
