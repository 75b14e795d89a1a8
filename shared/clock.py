"""Time: intervals on the monotonic clock of one process, instants on Redis's clock alone.

A wall clock is read for one purpose, the ``*_unix_ms`` facts that people read in documents. No
decision depends on it.
"""

from __future__ import annotations

import time


def monotonic_ms() -> float:
    """Milliseconds on this process's monotonic clock; only differences mean anything."""
    return time.monotonic() * 1000.0


def unix_ms() -> int:
    """Wall-clock milliseconds since 1970, for display only."""
    return time.time_ns() // 1_000_000


class Countdown:
    """A deadline as remaining time, so that it survives a wall clock that jumps."""

    def __init__(self, remaining_ms: float) -> None:
        self._ends_at = monotonic_ms() + remaining_ms

    @property
    def remaining_ms(self) -> float:
        return self._ends_at - monotonic_ms()

    @property
    def over(self) -> bool:
        return self.remaining_ms <= 0
