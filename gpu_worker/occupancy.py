"""The lanes that the engine has not let go of yet, whatever the books say of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Occupied:
    """A lane, by what its job needs: ``is_solo``, to run without neighbours."""

    is_solo: bool
    is_stopping: bool = False


class Occupancy:
    """By execution id. ``stop`` asks the engine for a lane back, which answers once it is free."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._lanes: dict[str, Occupied] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def take(self, execution: str, *, is_solo: bool) -> None:
        self._lanes[execution] = Occupied(is_solo)

    def release(self, execution: str) -> None:
        """The engine says that the lane is free."""
        self._lanes.pop(execution, None)

    def stop(self, execution: str) -> None:
        """Ask for the lane back, once, if it is still held."""
        lane = self._lanes.get(execution)
        if lane is not None and not lane.is_stopping:
            lane.is_stopping = True
            self._stop(execution)

    def has_room(self, lanes: int) -> bool:
        """Whether one more job may join on an engine of so many lanes."""
        is_shared = not any(lane.is_solo for lane in self._lanes.values())
        return is_shared and len(self._lanes) < lanes
