"""Cancels work by request id, or by cancellation id: a voice turn of one or more requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from scheduler.asking import asking
from scheduler.scripts import AsyncScripts

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from shared.settings import QueueSettings

Kind = Literal["request", "turn"]

REMEMBERED: Final[Mapping[str, bool]] = {"0": False, "1": True}
"""As the script says it."""


@dataclass(frozen=True, slots=True)
class CancelHit:
    """``was``: ``queued``, ``running`` or ``already_finished``."""

    request_id: str
    was: str


@dataclass(frozen=True, slots=True)
class CancelReport:
    """``remembered``: requests with this id that are still on their way will be refused."""

    hits: tuple[CancelHit, ...]
    remembered: bool


class Cancellation:
    """Cancels on behalf of a principal, who can't reach anyone else's ids."""

    def __init__(self, redis: Redis, settings: QueueSettings) -> None:
        self._redis = redis
        self._settings = settings
        self._scripts = AsyncScripts(redis, settings.namespace)

    async def cancel(self, principal: str, kind: Kind, id_: str) -> CancelReport:
        """Idempotent. A queued job leaves the queue now, a running one at its next frame."""
        settings = self._settings
        with asking(self._redis):
            reply = await self._scripts.call(
                "cancel",
                principal,
                kind,
                id_,
                settings.cancel_memory_ms,
                *settings.ending,
            )
            remembered, *flat = (part.decode() for part in reply)
            hits = tuple(CancelHit(*pair) for pair in zip(flat[::2], flat[1::2], strict=True))
            return CancelReport(hits, REMEMBERED[remembered])
