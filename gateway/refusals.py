"""What was refused of late for want of capacity, which an autoscaler wants to know of."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from shared.clock import monotonic_ms

WINDOW_MS: Final = 60_000.0


class Refusals:
    """Refusals for want of capacity, in this gateway, within the last minute."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, str]] = deque(maxlen=100_000)

    def note(self, code: str) -> None:
        self._noted.append((monotonic_ms(), code))

    def recent(self) -> dict[str, int]:
        """How many there were of each code, the most frequent first."""
        horizon = monotonic_ms() - WINDOW_MS
        while self._noted and self._noted[0][0] < horizon:
            self._noted.popleft()
        return dict(Counter(code for _, code in self._noted).most_common())
