"""Callers who stay, leave, or cancel by id or by turn, each as chance has it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from tests.chaos.callers import JSONL, Heard
from tests.chaos.site import Site

STAY: Final = "stay"
DROP: Final = "drop"
BY_ID: Final = "id"
BY_TURN: Final = "turn"
WAYS: Final = (STAY, DROP, BY_ID, BY_TURN)
TURN: Final = 3
"""So many callers share a turn."""
FRAMES: Final = 30


class Crowd:
    """``late`` names whoever heard audio that was made after the answer to their cancel, of the
    ``judged``, whose job was still on record when that answer came.
    """

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.dice = random.Random(seed)
        self.late: list[str] = []
        self.judged = 0

    async def call(self, number: int, way: str, **more: Any) -> Heard | None:
        """One caller's call; None for one who left without waiting for the end."""
        after_s, stream = 1.5 * self.dice.random(), self.dice.choice((None, JSONL))
        name, turn = f"crowd-{number}", f"turn-{number // TURN}"
        speaking = self.site.callers.speaking(
            self.dice.choice(self.site.urls),
            FRAMES,
            stream=stream,
            request_id=name,
            cancellation_id=turn if way == BY_TURN else name,
            **more,
        )
        if way == STAY:
            return await speaking
        await asyncio.sleep(after_s)
        if way == DROP:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            return None
        named = {"request_id": name} if way == BY_ID else {"cancellation_id": turn}
        for _ in range(100):
            if await self.site.callers.cancel(self.dice.choice(self.site.urls), **named):
                break
            await asyncio.sleep(0.1)
        known: dict[str, str] = {}
        with suppress(RedisError):
            known = await asyncio.to_thread(self.site.job_of, name)
        heard = await speaking
        if known and heard.code == "cancelled":
            self.judged += 1
            if heard.frames > int(known["frames"]):
                self.late.append(f"{name}: {heard.frames} of {known['frames']} frames")
        return heard
