"""Keeps what the caller's business made of a request, beside its end and as long as that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from scheduler.asking import asking
from scheduler.scripts import AsyncScripts

if TYPE_CHECKING:
    from redis.asyncio import Redis

Verdict = Literal["recorded", "repeated", "conflict", "unknown"]

VERDICTS: Final[Mapping[bytes, Verdict]] = {each.encode(): each for each in get_args(Verdict)}
"""As the script says them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """``at_ms``: when the first outcome came, on Redis's clock; 0 of an unknown request."""

    verdict: Verdict
    at_ms: int


class BusinessOutcomes:
    """Records outcomes on behalf of a principal, who can't reach anyone else's requests."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._scripts = AsyncScripts(redis, namespace)

    async def record(self, principal: str, request_id: str, outcome: str) -> Recorded:
        """The first stays; ``repeated`` is one with the same text, ``conflict`` any other."""
        with asking(self._redis):
            verdict, at_ms = await self._scripts.call(
                "record_outcome", principal, request_id, outcome
            )
            return Recorded(VERDICTS[verdict], int(at_ms))
