"""Whether Redis is there, as one loop finds it: said once when it goes and once when it is back.

When it comes and goes all the time that is not said each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from scheduler.connections import TROUBLE, is_away, trouble_in_words
from shared.clock import Countdown, monotonic_ms

FIRST_PAUSE_MS: Final = 50.0
LONGEST_PAUSE_MS: Final = 1000.0
SAID_AGAIN_MS: Final = 5000.0
"""Of absences that begin sooner after one that was said, only those that last so long are."""

log = structlog.get_logger()


class Link:
    """Remembers that Redis is away. What is none of its absences (``is_away``) is a failure.

    ``failure`` names the log line of one, in a loop that goes on whatever Redis answers. Without it
    failures are raised: a loop that holds leases must hand them back.
    """

    def __init__(self, failure: str | None = None) -> None:
        self.away = False
        self._failure = failure
        self._pause_ms = FIRST_PAUSE_MS
        self._next = Countdown(0)
        self._since_ms = 0.0
        self._is_said = False
        self._said_again = Countdown(0)

    @property
    def due(self) -> bool:
        """Whether Redis is worth an attempt now, for a loop that has no interval of its own."""
        return self._next.over

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Use Redis inside. What fails because it is away is left undone, and said once.

        ``away`` stays true inside the first attempt that succeeds: what has to be asserted anew
        after an outage is asserted there.
        """
        try:
            yield
        except TROUBLE as error:
            if is_away(error):
                self._lost(error)
            elif self._failure is None:
                raise
            else:
                log.error(self._failure, error=trouble_in_words(error))
        else:
            self._found()

    def _lost(self, error: Exception) -> None:
        if not self.away:
            self.away, self._since_ms, self._is_said = True, monotonic_ms(), False
        if not self._is_said and self._said_again.over:
            log.warning("redis_away", error=trouble_in_words(error))
            self._is_said, self._said_again = True, Countdown(SAID_AGAIN_MS)
        self._next = Countdown(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _found(self) -> None:
        if self.away and self._is_said:
            log.info("redis_back", away_ms=round(monotonic_ms() - self._since_ms))
        self.away, self._pause_ms = False, FIRST_PAUSE_MS
