"""What a caller hears of its job."""

from __future__ import annotations

import asyncio

from scheduler.listeners import Caller
from shared.messages import End, Event, FrameRecord


async def heard(caller: Caller) -> list[Event]:
    """All events up to the end."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], End):
        events.append(await asyncio.wait_for(caller.next_event(), 20))
    return events


def shape(events: list[Event]) -> list[str | int]:
    return [
        event.index if isinstance(event, FrameRecord) else type(event).__name__ for event in events
    ]
