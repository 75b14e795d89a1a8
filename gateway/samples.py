"""The samples of answers that leave in one piece, which can only begin once the end is known.

They are held in memory within a budget for the whole process. An answer that doesn't fit is not
held at all: its samples are read a second time, as its client takes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from gateway.speech import Take
from shared.messages import FrameRecord

HELD_BYTES: Final = 64 << 20


class Budget:
    """Bytes that one process may hold."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self.left = held_bytes


class Samples:
    """The samples of one answer, as they come. Release them when they have left."""

    def __init__(self, budget: Budget) -> None:
        self.size = 0
        self._budget = budget
        self._held: list[bytes] | None = []

    def add(self, pcm: bytes) -> None:
        self.size += len(pcm)
        if self._held is None:
            return
        if len(pcm) > self._budget.left:
            self.release()
            return
        self._budget.left -= len(pcm)
        self._held.append(pcm)

    def release(self) -> None:
        """Hold nothing from now on."""
        if self._held is not None:
            self._budget.left += sum(map(len, self._held))
            self._held = None

    async def all(self, take: Take) -> AsyncIterator[bytes]:
        """Every frame from the first, of the answer that ``take`` has heard to its end.

        Raises SpeechError as ``Take.next`` does, when what isn't held is no longer kept either.
        """
        if self._held is not None:
            for pcm in self._held:
                yield pcm
            return
        take.start_over()
        while isinstance(event := await take.next(), FrameRecord):
            yield event.pcm
