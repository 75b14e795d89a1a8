"""What a caller hears of its job."""

from __future__ import annotations

import asyncio
import time

from scheduler.listeners import Caller
from scheduler.queue import Claim, WorkQueue
from shared.messages import End, Event, FrameRecord
from tests.scheduler.conftest import Deployment


async def heard(caller: Caller) -> list[Event]:
    """All events up to the end."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], End):
        events.append(await asyncio.wait_for(caller.next_event(), 20))
    return events


async def outlasts(deployment: Deployment, work: WorkQueue, claim: Claim) -> None:
    """Whoever listens to this job goes on doing so for longer than a membership lasts, while its
    lease is renewed.
    """
    deadline = time.monotonic() + 1.5 * deployment.settings.listener_ttl_ms / 1000
    while time.monotonic() < deadline:
        work.renew([(claim.job_id, claim.execution)])
        assert deployment.reap().abandoned == 0
        await asyncio.sleep(0.05)


def shape(events: list[Event]) -> list[str | int]:
    return [
        event.index if isinstance(event, FrameRecord) else type(event).__name__ for event in events
    ]
