"""The probes: when a gateway would serve, and when it has to be started again."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.world import PATIENCE_S, World


async def test_ready_needs_a_ready_worker(world: World) -> None:
    """The probe is 200 while a ready worker serves the default artifact, else 503 with the why."""
    ready = await world.get("/health/ready")
    world.worker.beat(lanes=0, state="loading")
    loading = await world.get("/health/ready")

    assert (ready.status, ready.json()) == (200, {"status": "ready"})
    assert (loading.status, loading.json()["reasons"]) == (503, ["runtime_unavailable"])


async def test_a_dead_reader_is_not_live(world: World) -> None:
    """A gateway that can't hear its jobs any more says so, to be started again."""
    await world.gateway.reader.close()

    assert (await world.get("/health/live")).status == 503


async def test_a_dead_renewal_is_not_live(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that can't say that its callers are there would have every job abandoned."""
    fails = asyncio.Event()

    async def fail(*_: object) -> None:
        fails.set()
        raise ValueError("whatever nobody thought of")

    monkeypatch.setattr(type(world.gateway.listeners), "_renew", fail)
    world.post({"input": "Hello."})
    async with asyncio.timeout(PATIENCE_S):
        await fails.wait()
    await asyncio.sleep(0)

    live = await world.get("/health/live")
    assert (live.status, live.json()["reasons"]) == (503, ["listener_renewal"])
