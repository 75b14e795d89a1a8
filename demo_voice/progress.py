"""What a stage has done and when it will be done, one line at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

Tell = Callable[[str], None]


class Progress:
    """Counts to ``total`` from ``done``; tells at most every ``every_s`` seconds."""

    def __init__(
        self,
        name: str,
        total: int,
        tell: Tell,
        done: int = 0,
        every_s: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.total, self.done = name, total, done
        self._tell, self._every_s, self._clock = tell, every_s, clock
        self._first = done
        self._began = self._told = clock()

    def advance(self, count: int = 1, note: str = "") -> None:
        """``count`` more are done; ``note`` goes with the line, if there is one now."""
        self.done += count
        now = self._clock()
        if now - self._told < self._every_s and self.done < self.total:
            return
        self._told = now
        self._tell(f"{self.line(now)}{'  ' + note if note else ''}")

    def line(self, now: float) -> str:
        """As in ``speech: 40 of 100, 2.0 a second, 30 s left``."""
        passed = max(now - self._began, 1e-9)
        rate = (self.done - self._first) / passed
        left = (self.total - self.done) / rate if rate else 0.0
        return f"{self.name}: {self.done} of {self.total}, {rate:.3g} a second, {spell(left)} left"


def spell(seconds: float) -> str:
    """Hours, minutes or seconds, whichever is read at a glance."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
