"""What stops a worker's job before its text is spoken: cancels, deadlines, leases that are lost."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_worker.generation import Frame
from gpu_worker.leases import Lease
from scheduler.queue import WorkQueue
from tests.gpu_worker import worker_stage
from tests.gpu_worker.jobs import (
    SEED,
    admit,
    digests_in,
    end_of,
    ready_on_stage,
    speaking,
    take,
    terminal_of,
)
from tests.gpu_worker.worker_stage import (
    claimed,
    codes_of,
    digests_of,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import Deployment

fake_books, real_books = worker_stage.fake_books, worker_stage.real_books
books, no_waiting = worker_stage.any_books, worker_stage.no_waiting

pytestmark = pytest.mark.usefixtures("no_waiting")


def lapse(books: Deployment) -> None:
    """Let every lease lapse and the reaper see it, while the worker is not turned."""
    for _ in range(4):
        books.advance_ms(books.settings.lease_ms // 2)
        books.reap()


async def test_a_cancel_reaches_a_prefill(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that has no frame yet asks now and then, so a cancel stops it as well."""
    monkeypatch.setattr("gpu_worker.leases.ASK_MS", 0.0)
    stage = ready_on_stage(books)
    job_id = await admit(books)
    (key,) = take(stage)

    await books.cancellation.cancel("p", "request", "r1")
    stage.turn()

    assert stage.runtime.stopped == [key]
    end = await end_of(books, job_id)
    assert (end.finish_reason, end.failure_code) == ("cancelled", "cancelled")
    assert digests_in(await terminal_of(books, job_id)) == (None, None, None)


async def test_a_cancel_stops_speech_at_once(books: Deployment) -> None:
    """The caller hears the end before the engine has let go; no frame follows it."""
    stage = ready_on_stage(books)
    job_id, key = await speaking(books, stage)

    await books.cancellation.cancel("p", "request", "r1")
    stage.runtime.step(key)
    stage.turn()
    stage.runtime.step(key)
    stage.turn()

    assert stage.runtime.stopped == [key]
    assert stream_of(books, job_id) == ["claimed", record_of(SEED, 0), "end"]
    terminal = await terminal_of(books, job_id)
    assert (terminal.finish_reason, terminal.prompt_frame_count) == ("cancelled", None)
    assert digests_in(terminal) == digests_of(SEED, 1)


async def test_a_stopped_lane_is_taken_again_only_when_released(books: Deployment) -> None:
    """The engine is never given more generations than it has lanes."""
    stage = ready_on_stage(books, lanes=1)
    await admit(books)
    (key,) = take(stage)
    await books.cancellation.cancel("p", "request", "r1")
    stage.runtime.step(key)
    stage.turn()
    await admit(books, "r2")

    stage.turn(5)
    before = len(stage.runtime.submitted)
    stage.runtime.release(key)
    take(stage, 2)

    assert before == 1


async def test_a_cancel_that_meets_the_end_wins(books: Deployment) -> None:
    """A cancel that comes between the last frame and its end is what the caller is told."""
    stage = ready_on_stage(books)
    job_id, key = await speaking(books, stage)

    await books.cancellation.cancel("p", "request", "r1")
    stage.runtime.end(key)
    stage.turn()

    assert (await end_of(books, job_id)).finish_reason == "cancelled"
    assert (await terminal_of(books, job_id)).finish_reason == "cancelled"


async def test_a_deadline_ends_the_job(books: Deployment) -> None:
    """A job past its deadline ends as a timeout with what was spoken, and its lane is stopped."""
    stage = ready_on_stage(books)
    job_id = await admit(books, timeout_ms=150)
    (key,) = take(stage)
    stage.runtime.step(key)

    stage.turn_until(lambda: books.state(job_id) == "ended")

    end = await end_of(books, job_id)
    assert (end.finish_reason, end.failure_code) == ("timeout", "generation_timeout")
    assert digests_in(await terminal_of(books, job_id)) == digests_of(SEED, 1)
    assert stage.runtime.stopped == [key]


async def test_a_second_caller_with_more_time_extends_the_deadline(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first caller's deadline the worker learns of the second one's and speaks on."""
    verdicts: list[str] = []
    end = WorkQueue.end

    def noting(self: WorkQueue, *args: Any) -> Any:
        answer = end(self, *args)
        verdicts.append(answer.verdict)
        return answer

    monkeypatch.setattr(WorkQueue, "end", noting)
    stage = ready_on_stage(books)
    job_id = await admit(books, timeout_ms=150)
    (key,) = take(stage)
    await books.admit("r1", seed=SEED, timeout_ms=20_000, listener="g1|2")

    stage.turn_until(lambda: verdicts)
    stage.runtime.step(key)
    stage.turn()
    stage.runtime.end(key)
    stage.turn()

    assert verdicts == ["early", "ended"]
    assert stage.runtime.stopped == []
    assert digests_in(await terminal_of(books, job_id)) == digests_of(SEED, 1)


async def test_a_lost_lease_is_not_written_to(books: Deployment) -> None:
    """What a stalled worker made after its job went elsewhere is heard by nobody."""
    stage = ready_on_stage(books)
    job_id, key = await speaking(books, stage)
    lapse(books)
    other = books.worker("other")
    claim = claimed(other.claim("x" * 32))
    before = stream_of(books, job_id)

    stage.runtime.step(key)
    stage.runtime.end(key)
    stage.turn(2)

    assert claim.job_id == job_id
    assert (claim.attempt, claim.delivered[0].codes) == (2, codes_of(SEED, 0))
    assert stream_of(books, job_id) == before
    assert books.state(job_id) == "running"
    assert books.field(job_id, "worker_id") == "other"


async def test_a_lost_lease_frees_its_lane(books: Deployment) -> None:
    """A lane whose job went elsewhere is stopped in silence and takes the next job."""
    stage = ready_on_stage(books, lanes=1)
    await admit(books)
    (key,) = take(stage)
    lapse(books)
    claimed(books.worker("other").claim("x" * 32))
    await admit(books, "r2")

    stage.runtime.step(key)
    stage.turn()
    stage.runtime.release(key)
    take(stage, 2)

    assert stage.runtime.stopped == [key]


async def test_nothing_is_taken_after_the_end(fake_books: Deployment) -> None:
    """What the engine still makes of a job that was cancelled is not kept for posting."""
    work = fake_books.worker()
    await admit(fake_books)
    lease = Lease(claimed(work.claim("x" * 32)), worker_stage.facts())

    lease.cancel()
    lease.take(Frame(lease.execution, 0, codes_of(SEED, 0), bytes(3840)))

    assert not lease.unposted
    assert lease.outcome is not None
    assert lease.outcome.finish_reason == "cancelled"
