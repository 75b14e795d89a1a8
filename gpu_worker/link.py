"""Whether Redis is there, as the worker's loop sees it: attempts, with pauses in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from redis.exceptions import ResponseError

from scheduler.connections import AWAY, is_away, trouble_in_words
from shared.clock import Countdown, monotonic_ms

FIRST_PAUSE_MS: Final = 50.0
LONGEST_PAUSE_MS: Final = 1000.0

log = structlog.get_logger()


class Link:
    """Remembers that Redis is away, so that the loop tries it in pauses and never waits for it."""

    def __init__(self) -> None:
        self.away = False
        self._pause_ms = FIRST_PAUSE_MS
        self._next = Countdown(0)
        self._since_ms = 0.0

    @property
    def due(self) -> bool:
        """Whether Redis is worth an attempt now."""
        return self._next.over

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Use Redis inside. What fails because it is away is put off, anything else is raised.

        ``away`` stays true inside the first attempt that succeeds: what has to be asserted anew
        after an outage is asserted there.
        """
        try:
            yield
        except ResponseError as error:
            if not is_away(error):
                raise
            self._failed(error)
        except AWAY as error:
            self._failed(error)
        else:
            self._succeeded()

    def _failed(self, error: Exception) -> None:
        if not self.away:
            self.away, self._since_ms = True, monotonic_ms()
            log.warning("redis_away", error=trouble_in_words(error))
        self._next = Countdown(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _succeeded(self) -> None:
        if self.away:
            log.info("redis_back", away_ms=round(monotonic_ms() - self._since_ms))
        self.away, self._pause_ms = False, FIRST_PAUSE_MS


@contextmanager
def for_show(what: str) -> Iterator[None]:
    """RQ's records are there to be seen: what is wrong with them may not fail a job or stall one.

    That Redis takes no more of them (it is full, say) is no news either; that it is away is raised.
    """
    try:
        yield
    except AWAY:
        raise
    except ResponseError as error:
        log.warning("rq_record_failed", what=what, error=str(error)[:200])
