"""A worker's way with jobs: what is claimed, posted, stopped and stated, on an engine by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from rq import Queue

from gpu_worker.generation import Generation
from scheduler.queue import LanePost, WorkQueue
from scheduler.rq_records import MsgpackSerializer
from shared.clock import Countdown
from tests.gpu_worker import worker_stage
from tests.gpu_worker.jobs import (
    SEED,
    admit,
    digests_in,
    end_of,
    ready_on_stage,
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
from tests.scheduler.conftest import QUEUE, Deployment

fake_books, real_books = worker_stage.fake_books, worker_stage.real_books
books, no_waiting = worker_stage.any_books, worker_stage.no_waiting

pytestmark = pytest.mark.usefixtures("no_waiting")


async def test_speaks_a_job(books: Deployment) -> None:
    """A job is generated as admitted, its frames are heard in order, and its end has it all."""
    stage = ready_on_stage(books)
    job_id = await admit(books, input="Say this.", voice_profile_id="v", max_frames=9)

    (key,) = take(stage)
    for _ in range(3):
        stage.runtime.step(key)
        stage.turn()
    stage.runtime.end(key)
    stage.turn()

    assert stage.runtime.submitted == [
        Generation(key, "Say this.", 0, "v", "none", 9, 0.9, 50, SEED, (), 25)
    ]
    assert stream_of(books, job_id) == [
        "claimed",
        *(record_of(SEED, index) for index in range(3)),
        "end",
    ]
    terminal = await terminal_of(books, job_id)
    assert digests_in(terminal) == digests_of(SEED, 3)
    assert (terminal.finish_reason, terminal.stop_cause) == ("stop", "eos")
    assert (terminal.generated_frame_count, terminal.prompt_frame_count) == (3, 7)
    assert (terminal.worker_id, terminal.backend) == (stage.worker_id, "cpu")
    assert stage.runtime.stopped == []


async def test_leaves_nothing_in_rq(books: Deployment) -> None:
    """RQ's tools see a running job as started; after its end RQ knows nothing of it."""
    stage = ready_on_stage(books)
    job_id = await admit(books)
    queue = Queue(QUEUE, connection=books.redis, serializer=MsgpackSerializer)

    (key,) = take(stage)
    running = queue.started_job_registry.get_job_ids(cleanup=False)
    stage.runtime.end(key)
    stage.turn()

    assert running == [job_id]
    assert queue.started_job_registry.get_job_ids(cleanup=False) == []
    left = [name for name in books.redis.keys("rq:*") if job_id.encode() in name]
    assert left == []
    assert books.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0


async def test_a_step_of_all_lanes_is_one_post(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many lanes speak, one step's frames take one round trip."""
    stage = ready_on_stage(books, lanes=3)
    jobs = [await admit(books, f"r{number}") for number in range(3)]
    take(stage, 3)
    posts: list[int] = []
    post = WorkQueue.post

    def counting(self: WorkQueue, lanes: list[LanePost]) -> Any:
        posts.append(len(lanes))
        return post(self, lanes)

    monkeypatch.setattr(WorkQueue, "post", counting)
    stage.runtime.step()
    stage.turn()

    assert posts == [3]
    assert all(stream_of(books, job_id)[-1] == record_of(SEED, 0) for job_id in jobs)


async def test_claims_only_into_free_lanes(books: Deployment) -> None:
    """A worker with two lanes leaves the third job to others until a lane is free."""
    stage = ready_on_stage(books, lanes=2)
    jobs = [await admit(books, f"r{number}") for number in range(3)]

    first, _ = take(stage, 2)
    stage.turn(5)
    waiting = books.state(jobs[2])
    stage.runtime.end(first)
    take(stage, 3)

    assert waiting == "waiting"
    assert books.state(jobs[2]) == "running"


async def test_a_hint_that_leads_to_nothing_is_dropped(books: Deployment) -> None:
    """A job that was cancelled while it waited is never generated, and RQ keeps no trace."""
    stage = ready_on_stage(books)
    await admit(books)
    await books.cancellation.cancel("p", "request", "r1")

    stage.turn(3)

    assert stage.runtime.submitted == []
    assert books.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0
    assert books.listed() == []


async def test_a_second_attempt_goes_on_from_what_was_heard(books: Deployment) -> None:
    """Attempt 2 replays the delivered codes; its digests cover the whole answer."""
    first = books.worker("first")
    job_id = await admit(books)
    claim = claimed(first.claim("x" * 32))
    posted = [LanePost(claim.job_id, claim.execution, record_of(SEED, index)) for index in range(3)]
    assert first.post(posted) == ["ok"] * 3
    first.hand_back(claim.job_id, claim.execution, fault=True)

    stage = ready_on_stage(books)
    (key,) = take(stage)
    stage.runtime.step(key)
    stage.runtime.step(key)
    stage.runtime.end(key)
    stage.turn()

    assert stage.runtime.submitted[0].replay == tuple(codes_of(SEED, index) for index in range(3))
    frames = [entry for entry in stream_of(books, job_id) if not isinstance(entry, str)]
    assert frames == [record_of(SEED, index) for index in range(5)]
    terminal = await terminal_of(books, job_id)
    assert digests_in(terminal) == digests_of(SEED, 5)
    assert terminal.generated_frame_count == 5
    assert (await end_of(books, job_id)).attempt == 2


async def test_a_suspect_job_runs_alone(books: Deployment) -> None:
    """A job that broke a worker waits for empty lanes and has no neighbour while it runs."""
    stage = ready_on_stage(books, lanes=2)
    await admit(books, "neighbour")
    (neighbour,) = take(stage)
    suspect = await admit(books, "suspect")
    other = books.worker("other")
    claim = claimed(other.claim("x" * 32))
    assert claim.job_id == suspect
    other.hand_back(claim.job_id, claim.execution, fault=True)
    third = await admit(books, "third")

    stage.turn(5)
    beside_the_neighbour = (books.state(suspect), books.state(third))
    left_to_others = set(books.listed())
    stage.runtime.end(neighbour)
    _, alone = take(stage, 2)
    stage.turn(5)
    beside_the_suspect = (books.state(suspect), books.state(third))
    stage.runtime.end(alone)
    take(stage, 3)

    assert beside_the_neighbour == ("waiting", "waiting")
    assert left_to_others == {suspect, third}
    assert beside_the_suspect == ("running", "waiting")
    assert books.state(third) == "running"


async def test_a_poison_payload_is_refused_and_the_next_job_served(books: Deployment) -> None:
    """A job whose payload can't be read ends as an error; the one behind it is spoken."""
    stage = ready_on_stage(books)
    poison = await admit(books, "poison")
    books.redis.hset(books.keys.job(poison), "payload", b"\x80\x04pickle")
    good = await admit(books, "good")

    take(stage)

    end = await end_of(books, poison)
    assert (end.finish_reason, end.failure_code) == ("error", "internal_error")
    assert books.state(good) == "running"


async def test_a_foreign_rq_job_is_never_run(books: Deployment, tmp_path: Path) -> None:
    """A job that names another function is dropped and counted; ours behind it is served."""
    stage = ready_on_stage(books)
    trace = tmp_path / "ran"
    foreign = Queue(QUEUE, connection=books.redis).enqueue(os.mkdir, str(trace))
    job_id = await admit(books)

    take(stage)

    assert not trace.exists()
    assert not books.redis.exists(f"rq:job:{foreign.id}")
    assert books.redis.hget(books.keys.stats(QUEUE), "foreign_refused") == b"1"
    assert books.state(job_id) == "running"


async def test_a_foreign_artifact_is_refused(books: Deployment) -> None:
    """A job for other weights than ours never reaches the engine."""
    stage = ready_on_stage(books)
    job_id = await admit(books, artifact_id="demo@sha256:11")

    stage.turn_until(lambda: books.state(job_id) == "ended")

    assert stage.runtime.submitted == []
    end = await end_of(books, job_id)
    assert (end.finish_reason, end.failure_code) == ("error", "artifact_unavailable")


async def test_a_row_that_fails_ends_alone(books: Deployment) -> None:
    """The engine's word about one row ends that job as an error; its neighbour speaks on."""
    stage = ready_on_stage(books)
    failing = await admit(books, "failing")
    healthy = await admit(books, "healthy")
    first, second = take(stage, 2)

    stage.runtime.end(first, "error", None, "csm_synthesis_failed")
    stage.runtime.step(second)
    stage.turn()

    end = await end_of(books, failing)
    assert (end.finish_reason, end.failure_code) == ("error", "csm_synthesis_failed")
    assert stream_of(books, healthy)[-1] == record_of(SEED, 0)


async def test_a_lost_reply_to_a_claim_is_found_again(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that Redis made but whose answer got lost is ours at the next turn, as attempt 1."""
    stage = ready_on_stage(books)
    job_id = await admit(books)
    claim, replies = WorkQueue.claim, []

    def losing(self: WorkQueue, *args: Any, **options: Any) -> Any:
        reply = claim(self, *args, **options)
        replies.append(reply)
        if len(replies) == 1:
            raise RedisConnectionError("the reply was lost")
        return reply

    monkeypatch.setattr(WorkQueue, "claim", losing)
    (key,) = take(stage)

    assert [claimed(reply).execution for reply in replies[:2]] == [key, key]
    assert books.field(job_id, "attempt") == "1"


RQ_KEYS = {
    "list": f"rq:queue:{QUEUE}",
    "intermediate list": f"rq:queue:{QUEUE}:intermediate",
    "started registry": f"rq:wip:{QUEUE}",
    "registry of workers": f"rq:workers:{QUEUE}",
}


@pytest.mark.parametrize("key", RQ_KEYS.values(), ids=RQ_KEYS)
async def test_junk_in_a_key_of_rqs_ends_no_worker(books: Deployment, key: str) -> None:
    """Whatever somebody put there, the worker takes, speaks and ends jobs as before."""
    stage = ready_on_stage(books)
    await admit(books, "r0", max_frames=1)
    take(stage)
    books.redis.delete(key)
    books.redis.set(key, "junk")
    stage.worker._reaper._rounds = 0  # so that it looks for RQ's dead, too
    stage.worker._reaping = Countdown(0)

    job_id = (await books.admit("r1", seed=SEED, max_frames=1)).job_id
    spoken = take(stage, 2)

    stage.runtime.step()
    for execution in spoken:
        stage.runtime.end(execution)
    stage.turn_until(lambda: books.state(job_id) == "ended")
    assert (await end_of(books, job_id)).finish_reason == "stop"
