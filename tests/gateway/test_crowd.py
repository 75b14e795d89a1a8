"""A crowd of requests leaves room for everything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.validation import Validator
from tests.gateway.world import World

CROWD = 300


async def test_whoever_asks_how_things_stand_is_answered_between_a_crowd(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of requests at the same moment are checked and admitted a few at a time."""
    checked: list[str] = []
    check = Validator.check

    def counted(self: Validator, request: Any, fallback_id: str) -> Any:
        checked.append(fallback_id)
        return check(self, request, fallback_id)

    monkeypatch.setattr(Validator, "check", counted)
    await world.get("/health")
    crowd = [world.post({"input": "Hello.", "timeout_ms": 30_000}) for _ in range(CROWD)]
    await asyncio.sleep(0)  # all of them have arrived

    health = await world.get("/health")

    assert health.status == 200
    assert 0 < len(checked) < CROWD // 4
    assert not any(call.task.done() for call in crowd)
