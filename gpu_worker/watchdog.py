"""Whether an engine that has work still comes round: a device that hangs raises nothing."""

from __future__ import annotations

from typing import Final

from gpu_worker.engine_thread import EngineFault
from shared.clock import monotonic_ms

STUCK_MS: Final = 30_000.0
"""Far longer than any round: one prefill chunk, a few replayed frames, and a frame of all lanes."""
LOOK_MS: Final = 1000.0
"""The most that one look counts, so that time in which the whole process stood still does not."""


class Watchdog:
    """Looks at a runtime's count of rounds, often."""

    def __init__(self) -> None:
        self._rounds = -1
        self._stood_ms = 0.0
        self._looked_at_ms = monotonic_ms()

    def look(self, rounds: int, *, is_busy: bool) -> None:
        """Raises EngineFault if a busy engine has not come round for ``STUCK_MS``."""
        now_ms = monotonic_ms()
        passed_ms, self._looked_at_ms = now_ms - self._looked_at_ms, now_ms
        if rounds != self._rounds or not is_busy:
            self._rounds, self._stood_ms = rounds, 0.0
            return
        self._stood_ms += min(passed_ms, LOOK_MS)
        if self._stood_ms >= STUCK_MS:
            raise EngineFault("stuck")
