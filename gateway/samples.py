"""The samples of answers that leave in one piece, which can only begin once the end is known.

They, or what they were compressed to, are held in memory within a budget for the whole process. An
answer that doesn't fit is not held at all: its samples are read a second time, as its client takes
them, and compressed as they are read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Self

from gateway.take import Take
from shared.messages import FrameRecord

HELD_BYTES: Final = 64 << 20


class Budget:
    """Bytes that one process may hold."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self.left = held_bytes

    def take(self, count: int) -> bool:
        """Whether so many may be held, which are then taken."""
        if count > self.left:
            return False
        self.left -= count
        return True


class Samples:
    """The samples of one answer, as they come. Held until they have left or their client has."""

    def __init__(self, budget: Budget) -> None:
        self.size = 0
        self._budget = budget
        self._charged = 0
        self._held: list[bytes] | None = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def add(self, pcm: bytes) -> None:
        self.size += len(pcm)
        if self._held is None:
            return
        if self._budget.take(len(pcm)):
            self._charged += len(pcm)
            self._held.append(pcm)
        else:
            self.release()

    def hold_instead(self, body: bytes) -> bool:
        """Hold what the samples were made into, in their place, if there is room for that."""
        self.release()
        if not self._budget.take(len(body)):
            return False
        self._charged = len(body)
        return True

    def release(self) -> None:
        """Hold nothing from now on."""
        self._budget.left += self._charged
        self._charged, self._held = 0, None

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
