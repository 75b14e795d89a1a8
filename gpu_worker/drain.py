"""The end of a worker's service: told once it drains, told twice it hands back at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from shared.clock import Countdown

if TYPE_CHECKING:
    from gpu_worker.signals import StopSignals

log = structlog.get_logger()


class Drain:
    """Begins with the first signal, and is over within ``grace_ms``."""

    def __init__(self, signals: StopSignals, grace_ms: int) -> None:
        self._signals = signals
        self._grace_ms = grace_ms
        self._left: Countdown | None = None

    @property
    def has_begun(self) -> bool:
        return self._left is not None

    def heed_signals(self, in_flight: int) -> None:
        """The first one begins the drain of ``in_flight`` jobs."""
        if self._signals.count and self._left is None:
            self._left = Countdown(self._grace_ms)
            log.info("draining", in_flight=in_flight)

    def is_done(self, in_flight: int) -> bool:
        """Whether all that is left is to hand back what didn't get done."""
        if self._left is None:
            return False
        return not in_flight or self._left.over or self._signals.count > 1
