"""The wait that callers are told: measured, aware of lengths, and held against what came true."""

from __future__ import annotations

import pytest

from scheduler.load import QueueLoad
from scheduler.queue import WorkQueue
from shared.errors import SpeechError
from tests.scheduler.conftest import QUEUE, Deployment, terminal

STEP_MS = 100.0


def warm(deployment: Deployment, lanes: int = 1, step_ms: float | None = STEP_MS) -> WorkQueue:
    """A worker whose warm-up took so long per step."""
    work = deployment.worker(lanes=lanes)
    work.heartbeat({}, lanes=lanes, step_ms=step_ms)
    return work


async def load_of(deployment: Deployment) -> QueueLoad:
    return (await deployment.load.snapshot()).queue(QUEUE)


async def expected_wait(deployment: Deployment, principal: str, priority: str) -> float:
    """The wait that a hopeless request is told, which leaves nothing behind."""
    with pytest.raises(SpeechError) as caught:
        await deployment.admit(
            "hopeless", principal=principal, priority=priority, timeout_ms=1, max_frames=1
        )
    assert caught.value.code == "deadline_unmeetable"
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


async def speak(
    deployment: Deployment, work: WorkQueue, name: str, budget: int, frames: int, step_ms: int
) -> None:
    """One job from the door to its end, at so many milliseconds a frame."""
    await deployment.admit(name, max_frames=budget)
    claim = deployment.claim(work)
    deployment.post(work, claim, *range(frames))
    deployment.advance_ms(frames * step_ms)
    work.end(claim.job_id, claim.execution, terminal())


async def test_the_first_flood_is_refused_by_the_warm_ups_pace(fake: Deployment) -> None:
    """Before anything has ended, nobody is let in whom the warm-up's step time rules out."""
    work = warm(fake)
    await fake.admit("running", max_frames=50)
    fake.claim(work)
    await fake.admit("ahead", max_frames=50, timeout_ms=30_000)

    with pytest.raises(SpeechError) as caught:
        await fake.admit("late", max_frames=50, timeout_ms=14_000)

    assert caught.value.code == "deadline_unmeetable"
    assert (await fake.admit("patient", max_frames=50, timeout_ms=16_000)).kind == "admitted"


async def test_without_any_measure_nothing_is_guessed(fake: Deployment) -> None:
    """A worker that states no step time leaves the wait at 0 until a job has ended."""
    work = warm(fake, step_ms=None)
    await fake.admit("running", max_frames=50)
    fake.claim(work)

    assert (await load_of(fake)).estimated_wait_ms == 0
    assert (await fake.admit("late", max_frames=50, timeout_ms=100)).kind == "admitted"


async def test_waits_follow_the_lengths_of_those_ahead(fake: Deployment) -> None:
    """Ten short jobs ahead are not ten long ones, and what runs counts less the longer it has."""
    work = warm(fake, lanes=2)
    for name, frames in (("a", 100), ("b", 50)):
        await fake.admit(name, max_frames=frames)
        fake.claim(work)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(7500, abs=200)

    fake.advance_ms(2000)
    warm(fake, lanes=2)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(5500, abs=200)

    await fake.admit("c", max_frames=20)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(6500, abs=200)


async def test_measured_pace_and_used_budget_take_the_warm_ups_place(fake: Deployment) -> None:
    """Jobs that end early and frames that take longer both show in what the next are told."""
    work = warm(fake)
    await speak(fake, work, "a", budget=40, frames=10, step_ms=200)
    warm(fake)

    load = await load_of(fake)
    assert load.mean_service_ms == pytest.approx(2000, abs=200)
    assert load.mean_frame_ms == pytest.approx(200, abs=20)
    assert load.budget_used == pytest.approx(0.25)

    await fake.admit("b", max_frames=40)
    fake.claim(work)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(2000, abs=300)


async def test_what_did_not_run_through_measures_nothing(fake: Deployment) -> None:
    """A failed job, or one that another worker had begun, says nothing of a frame's service."""
    work = warm(fake)
    await fake.admit("failed")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    fake.advance_ms(900)
    work.end(claim.job_id, claim.execution, terminal("error", failure_code="csm_synthesis_failed"))
    await fake.admit("again")
    claim = fake.claim(work)
    fake.post(work, claim, 0)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    claim = fake.claim(work)
    work.end(claim.job_id, claim.execution, terminal())

    assert (await load_of(fake)).mean_service_ms == 0


async def test_an_admission_reads_no_other_job(fake: Deployment) -> None:
    """What is told doesn't depend on other jobs' records, nor its cost on their number."""
    work = warm(fake)
    await fake.admit("running", max_frames=50)
    fake.claim(work)
    await fake.admit("ahead", max_frames=50)
    before = await expected_wait(fake, "q", "interactive")

    for key in fake.redis.keys("t:job:*"):
        fake.redis.delete(key)

    assert await expected_wait(fake, "q", "interactive") == pytest.approx(before, abs=0.2)


async def test_batch_work_ahead_delays_only_batch_work(fake: Deployment) -> None:
    """An interactive request counts interactive jobs ahead, a batch request both."""
    work = warm(fake)
    await fake.admit("running", max_frames=50)
    fake.claim(work)
    await fake.admit("batch", priority="batch", max_frames=100, timeout_ms=60_000)
    await fake.admit("interactive", max_frames=20, timeout_ms=60_000)

    assert await expected_wait(fake, "q", "interactive") == pytest.approx(5 + 2, abs=0.5)
    assert await expected_wait(fake, "q", "batch") == pytest.approx(5 + 2 + 10, abs=0.5)


async def test_another_principals_long_line_is_passed_by_turns(fake: Deployment) -> None:
    """Who has nothing in line waits for one of each other; the greedy one for all of its own."""
    work = warm(fake)
    await fake.admit("running", max_frames=10)
    fake.claim(work)
    for number in range(6):
        await fake.admit(f"r{number}", principal="greedy", max_frames=10, timeout_ms=60_000)

    assert await expected_wait(fake, "modest", "interactive") == pytest.approx(2, abs=0.5)
    assert await expected_wait(fake, "greedy", "interactive") == pytest.approx(7, abs=0.5)


async def test_what_must_run_alone_takes_the_time_of_a_whole_worker(fake: Deployment) -> None:
    """It holds all of a worker's lanes, and goes before as many others as there are lanes."""
    work = warm(fake, lanes=4)
    await fake.admit("suspect", max_frames=10, timeout_ms=60_000)
    claim = fake.claim(work)
    for number in range(4):
        await fake.admit(f"r{number}", max_frames=10, timeout_ms=60_000)
    before = (await load_of(fake)).estimated_wait_ms
    work.hand_back(claim.job_id, claim.execution, fault=True)

    assert before == pytest.approx(1250, abs=150)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(2000, abs=150)
    assert await expected_wait(fake, "q", "interactive") == pytest.approx(1.25 + 0.1, abs=0.15)


async def test_who_runs_alone_keeps_all_lanes_of_its_worker_from_others(fake: Deployment) -> None:
    """While it runs no lane of its worker is free, and its rest is waited for by one and all."""
    work = warm(fake, lanes=4)
    await fake.admit("suspect", max_frames=20, timeout_ms=60_000)
    claim = fake.claim(work)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    alone = fake.claim(work)
    assert alone.solo
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(2000, abs=10)

    fake.advance_ms(1500)
    warm(fake, lanes=4)
    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(500, abs=10)
    with pytest.raises(SpeechError) as caught:
        await fake.admit("hasty", max_frames=1, timeout_ms=400)
    assert caught.value.code == "deadline_unmeetable"

    fake.worker("w2", lanes=4)
    assert (await load_of(fake)).estimated_wait_ms == 0
    work.end(alone.job_id, alone.execution, terminal())
    assert not fake.redis.exists("t:alone:" + QUEUE)
    assert (await load_of(fake)).estimated_wait_ms == 0


async def test_who_runs_alone_for_another_caller_does_so_until_that_ones_deadline(
    fake: Deployment,
) -> None:
    """Newcomers wait for it also past the deadline that it came with."""
    work = warm(fake, lanes=4)
    await fake.admit("suspect", max_frames=20, timeout_ms=300)
    claim = fake.claim(work)
    work.hand_back(claim.job_id, claim.execution, fault=True)
    assert fake.claim(work).solo
    attached = await fake.admit("suspect", max_frames=20, timeout_ms=60_000, listener="g1|2")
    assert attached.kind == "attached"

    fake.advance_ms(500)
    warm(fake, lanes=4)

    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(1500, abs=10)


async def test_the_estimates_error_is_published(fake: Deployment) -> None:
    """What was told at the door is held against what was waited, as a mean distance and a bias."""
    work = warm(fake)
    await fake.admit("first", max_frames=20)
    first = fake.claim(work)
    fake.redis.hdel(fake.keys.stats(QUEUE), "wait_error_ms", "wait_bias_ms")
    await fake.admit("second", max_frames=20)  # is told 2 s
    fake.advance_ms(500)
    work.end(first.job_id, first.execution, terminal())
    fake.claim(work)

    load = await load_of(fake)

    assert load.estimated_wait_error_ms == pytest.approx(1500, abs=200)
    assert load.estimated_wait_bias_ms == pytest.approx(1500, abs=200)


async def test_what_bounds_were_too_long_by_is_taken_off(fake: Deployment) -> None:
    """Told too long again and again, the next are told less."""
    work = warm(fake)
    await fake.admit("running", max_frames=20)
    fake.claim(work)
    fake.redis.hset(fake.keys.stats(QUEUE), "wait_over_ms", 600)

    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(1400, abs=150)


async def test_what_bounds_were_too_long_by_is_learnt(fake: Deployment) -> None:
    """A wait of half a second where the bound was two teaches the estimate that."""
    work = warm(fake)
    await fake.admit("first", max_frames=20)
    first = fake.claim(work)
    await fake.admit("second", max_frames=20)
    fake.advance_ms(500)
    work.end(first.job_id, first.execution, terminal())
    fake.claim(work)

    assert (await load_of(fake)).estimated_wait_ms == pytest.approx(500, abs=150)


async def test_only_first_claims_of_interactive_jobs_are_held_against_the_estimate(
    fake: Deployment,
) -> None:
    """A second claim waits for other reasons, and batch work is told nothing that must hold."""
    work = warm(fake)
    await fake.admit("batch", priority="batch")
    fake.advance_ms(800)
    fake.claim(work)

    assert (await load_of(fake)).estimated_wait_error_ms == 0


async def test_a_job_that_went_on_elsewhere_is_no_measure(fake: Deployment) -> None:
    """Of a job that a worker handed back, the last worker made a part: its time says nothing."""
    work = fake.worker()
    await fake.admit("r1")
    drained = fake.claim(work)
    fake.post(work, drained, 0, 1, 2)
    work.hand_back(drained.job_id, drained.execution)
    fake.advance_ms(10)
    last = fake.claim(work)
    fake.post(work, last, 3)
    work.end(last.job_id, last.execution, terminal())

    assert fake.redis.hget(fake.keys.stats(QUEUE), "service_ms") is None
