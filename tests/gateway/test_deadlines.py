"""A caller's own deadline: nobody waits longer, and what is whole by then is handed over."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from shared.wav import wav_file
from tests.conftest import until
from tests.gateway.world import PATIENCE_S, TIMEOUT_MS, World, pcm

HELLO = {"input": "Hello.", "request_id": "r1"}


async def test_nobody_waits_past_the_deadline_in_the_queue(world: World) -> None:
    """Never claimed: 504 queue_timeout by the deadline and a second, and the job is gone."""
    took_s: list[float] = []
    while not took_s or (min(took_s) > 1.4 and len(took_s) < 5):  # a busy machine may add to one
        started = time.monotonic()
        answer = await world.refused({"input": "Hello.", "timeout_ms": 400})
        took_s.append(time.monotonic() - started)
        await world.calls[-1].task

    assert (answer.status, answer.code) == (504, "queue_timeout")
    assert answer.error["type"] == "timeout_error"
    assert min(took_s) <= 1.4
    assert world.redis.zcard(world.keys.waiting(world.artifact.queue_name("t"))) == 0


async def test_nobody_waits_past_the_deadline_for_a_silent_worker(world: World) -> None:
    """Claimed and silent: 504 generation_timeout, and the worker is told to stop."""
    call = world.post({**HELLO, "timeout_ms": TIMEOUT_MS})
    claim = await world.worker.claim()
    world.worker.post(claim, 0)

    answer = await call.answer()
    await call.task

    assert (answer.status, answer.code) == (504, "generation_timeout")
    assert world.worker.verdict(claim) == "cancelled"


@pytest.mark.parametrize("ended", [True, False])
async def test_an_answer_that_is_whole_by_the_deadline_is_handed_over(
    world: World, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """However late its gateway hears of it; what isn't whole by then is a timeout."""
    monkeypatch.setattr(world.gateway.reader, "_tell", lambda _: None)
    call = world.post({**HELLO, "timeout_ms": TIMEOUT_MS})
    claim = await world.worker.claim()
    world.worker.post(claim, 0, 1)
    if ended:
        world.worker.end(claim, 2)

    answer = await call.answer()

    assert answer.status == (200 if ended else 504)
    assert (answer.body == wav_file(pcm(0) + pcm(1))) is ended


async def test_a_worker_may_state_the_timeout_itself(world: World) -> None:
    """The worker's own end at the deadline is what the caller hears."""
    call = world.post(HELLO)
    claim = await world.worker.claim()
    world.redis.hset(world.keys.job(claim.job_id), "deadline_ms", 1)  # long ago by Redis's clock
    world.worker.end(claim, 0, "timeout", failure_code="generation_timeout", message="too late")

    answer = await call.answer()

    assert (answer.code, answer.error["message"]) == ("generation_timeout", "too late")


async def test_nobody_waits_past_the_deadline_for_a_slow_redis(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom Redis holds up at the door is refused by the deadline, and is no listener when it
    answers after all.
    """
    admission = world.gateway.listeners._admission
    admit, answers = admission.admit, asyncio.Event()

    async def hold_up(*args: Any) -> Any:
        admitted = await admit(*args)
        await answers.wait()
        return admitted

    monkeypatch.setattr(admission, "admit", hold_up)
    started = time.monotonic()
    answer = await world.refused({**HELLO, "timeout_ms": TIMEOUT_MS})
    took_s = time.monotonic() - started

    assert (answer.status, answer.code) == (503, "queue_unavailable")
    assert "retry-after" in answer.headers
    assert 1000 * took_s < TIMEOUT_MS + PATIENCE_S * 1000 / 2
    await until(lambda: world.redis.zcard(world.keys.waiting(world.artifact.queue_name("t"))) == 0)
