"""How a worker gets its next job, where RQ can't say that there is one."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError

from gpu_worker.intake import Intake
from scheduler.carrier import Carrier
from scheduler.queue import WorkQueue
from tests.gpu_worker import worker_stage
from tests.scheduler.conftest import Deployment

books = worker_stage.fake_books

FULL = OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")


@pytest.fixture
def intake(books: Deployment) -> Intake:
    return Intake(books.carrier, books.worker("w1"))


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The executions that were claimed with, in order."""
    asked: list[str] = []
    claim = WorkQueue.claim

    def noted(self: WorkQueue, execution: str, **how: Any) -> Any:
        asked.append(execution)
        return claim(self, execution, **how)

    monkeypatch.setattr(WorkQueue, "claim", noted)
    return asked


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """RQ can move no id any more."""

    def refused(self: Carrier, timeout_s: float | None) -> None:
        raise FULL

    monkeypatch.setattr(Carrier, "pull", refused)


async def test_an_undecided_claim_is_asked_before_anything_else(
    books: Deployment, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose reply was lost is found again, also where RQ has no id any more."""
    job_id = (await books.admit("r1")).job_id
    claim = WorkQueue.claim

    def deaf(self: WorkQueue, execution: str, **how: Any) -> None:
        claim(self, execution, **how)
        raise RedisConnectionError("the reply was lost")

    with monkeypatch.context() as lost:
        fill(lost)
        lost.setattr(WorkQueue, "claim", deaf)
        with pytest.raises(RedisConnectionError):
            intake.take(0, None)
    assert books.state(job_id) == "running"

    taken = intake.take(1, None)

    assert taken is not None
    assert (taken.claim.job_id, taken.claim.attempt) == (job_id, 1)


async def test_a_full_redis_without_a_job_is_asked_in_pauses(
    intake: Intake, claims: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing to claim while Redis is full is no error, and nobody asks on and on."""
    fill(monkeypatch)

    assert [intake.take(busy, None) for busy in (0, 1, 0)] == [None, None, None]

    assert len(claims) == 1
    assert not intake.due


async def test_what_must_run_alone_is_taken_from_a_full_redis_once_no_lane_is_busy(
    books: Deployment, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that made itself free for a job needs no id of RQ's and no pause to get it."""
    other = books.worker("w2")
    job_id = (await books.admit("r1")).job_id
    claim = books.claim(other)
    other.hand_back(claim.job_id, claim.execution, fault=True)
    fill(monkeypatch)

    assert intake.take(1, None) is None

    taken = intake.take(0, None)
    assert taken is not None
    assert (taken.claim.job_id, taken.claim.solo) == (job_id, True)
