"""A worker's way with jobs: what is claimed, posted, stopped and stated, on an engine by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from rq import Queue

from gpu_worker.lanes import Frame, Generation
from gpu_worker.leases import Lease
from scheduler.carrier import MsgpackSerializer
from scheduler.queue import LanePost, WorkQueue
from shared.clock import Countdown
from shared.messages import End, Terminal
from tests.gpu_worker import worker_stage
from tests.gpu_worker.worker_stage import (
    ScriptedRuntime,
    Stage,
    claimed,
    codes_of,
    digests_of,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import QUEUE, Deployment

fake_books, real_books = worker_stage.fake_books, worker_stage.real_books
books = worker_stage.any_books

SEED = 7


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle turn looks round soon."""
    monkeypatch.setattr("gpu_worker.worker.IDLE_WAIT_S", 0.01)
    monkeypatch.setattr("gpu_worker.intake.HOLD_MS", 0.0)


def on_stage(books: Deployment, lanes: int = 2, **changes: Any) -> Stage:
    """A ready worker that has said so."""
    stage = Stage(books.redis, books.settings, ScriptedRuntime(lanes), **changes)
    stage.turn()
    return stage


async def admit(books: Deployment, request_id: str = "r1", **options: Any) -> str:
    """The job's id, after its hint was pushed as a gateway does it."""
    admitted = await books.admit(request_id, seed=SEED, **options)
    books.carrier.push(admitted.job_id)
    return admitted.job_id


async def end_of(books: Deployment, job_id: str) -> End:
    record = await books.results.read(job_id)
    assert record is not None
    assert record.end is not None, "the job has not ended"
    return record.end


async def terminal_of(books: Deployment, job_id: str) -> Terminal:
    terminal = (await end_of(books, job_id)).terminal
    assert terminal is not None
    return terminal


def digests_in(terminal: Terminal) -> tuple[str | None, str | None, str | None]:
    return terminal.codebook_frames_sha256, terminal.pcm16_sha256, terminal.wav_pcm16_digest


def take(stage: Stage, jobs: int = 1) -> list[str]:
    """The executions of so many jobs, once the engine has them."""
    stage.turn_until(lambda: len(stage.runtime.submitted) >= jobs)
    return [generation.key for generation in stage.runtime.submitted]


async def test_speaks_a_job(books: Deployment) -> None:
    """A job is generated as admitted, its frames are heard in order, and its end has it all."""
    stage = on_stage(books)
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
    stage = on_stage(books)
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
    stage = on_stage(books, lanes=3)
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
    stage = on_stage(books, lanes=2)
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
    stage = on_stage(books)
    await admit(books)
    await books.cancellation.cancel("p", "request", "r1")

    stage.turn(3)

    assert stage.runtime.submitted == []
    assert books.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0
    assert books.listed() == []


async def test_a_cancel_reaches_a_prefill(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that has no frame yet asks now and then, so a cancel stops it as well."""
    monkeypatch.setattr("gpu_worker.leases.ASK_MS", 0.0)
    stage = on_stage(books)
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
    stage = on_stage(books)
    job_id = await admit(books)
    (key,) = take(stage)
    stage.runtime.step(key)
    stage.turn()

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
    stage = on_stage(books, lanes=1)
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
    stage = on_stage(books)
    job_id = await admit(books)
    (key,) = take(stage)
    stage.runtime.step(key)
    stage.turn()

    await books.cancellation.cancel("p", "request", "r1")
    stage.runtime.end(key)
    stage.turn()

    assert (await end_of(books, job_id)).finish_reason == "cancelled"
    assert (await terminal_of(books, job_id)).finish_reason == "cancelled"


async def test_a_deadline_ends_the_job(books: Deployment) -> None:
    """A job past its deadline ends as a timeout with what was spoken, and its lane is stopped."""
    stage = on_stage(books)
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
    stage = on_stage(books)
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
    stage = on_stage(books)
    job_id = await admit(books)
    (key,) = take(stage)
    stage.runtime.step(key)
    stage.turn()
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
    stage = on_stage(books, lanes=1)
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


async def test_a_second_attempt_goes_on_from_what_was_heard(books: Deployment) -> None:
    """Attempt 2 replays the delivered codes; its digests cover the whole answer."""
    first = books.worker("first")
    job_id = await admit(books)
    claim = claimed(first.claim("x" * 32))
    posted = [LanePost(claim.job_id, claim.execution, record_of(SEED, index)) for index in range(3)]
    assert first.post(posted) == ["ok"] * 3
    first.hand_back(claim.job_id, claim.execution, fault=True)

    stage = on_stage(books)
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
    stage = on_stage(books, lanes=2)
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
    stage = on_stage(books)
    poison = await admit(books, "poison")
    books.redis.hset(books.keys.job(poison), "payload", b"\x80\x04pickle")
    good = await admit(books, "good")

    take(stage)

    end = await end_of(books, poison)
    assert (end.finish_reason, end.failure_code) == ("error", "internal_error")
    assert books.state(good) == "running"


async def test_a_foreign_rq_job_is_never_run(books: Deployment, tmp_path: Path) -> None:
    """A job that names another function is dropped and counted; ours behind it is served."""
    stage = on_stage(books)
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
    stage = on_stage(books)
    job_id = await admit(books, artifact_id="demo@sha256:11")

    stage.turn_until(lambda: books.state(job_id) == "ended")

    assert stage.runtime.submitted == []
    end = await end_of(books, job_id)
    assert (end.finish_reason, end.failure_code) == ("error", "artifact_unavailable")


async def test_a_row_that_fails_ends_alone(books: Deployment) -> None:
    """The engine's word about one row ends that job as an error; its neighbour speaks on."""
    stage = on_stage(books)
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
    stage = on_stage(books)
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


def lapse(books: Deployment) -> None:
    """Let every lease lapse and the reaper see it, while the worker is not turned."""
    for _ in range(4):
        books.advance_ms(books.settings.lease_ms // 2)
        books.reap()


RQ_KEYS = {
    "list": f"rq:queue:{QUEUE}",
    "intermediate list": f"rq:queue:{QUEUE}:intermediate",
    "started registry": f"rq:wip:{QUEUE}",
    "registry of workers": f"rq:workers:{QUEUE}",
}


@pytest.mark.parametrize("key", RQ_KEYS.values(), ids=RQ_KEYS)
async def test_junk_in_a_key_of_rqs_ends_no_worker(books: Deployment, key: str) -> None:
    """Whatever somebody put there, the worker takes, speaks and ends jobs as before."""
    stage = on_stage(books)
    await admit(books, "r0", max_frames=1)
    take(stage)
    books.redis.delete(key)
    books.redis.set(key, "junk")
    stage.worker._reaper._passes = 0  # so that it looks for RQ's dead, too
    stage.worker._reaping = Countdown(0)

    job_id = (await books.admit("r1", seed=SEED, max_frames=1)).job_id
    spoken = take(stage, 2)

    stage.runtime.step()
    for execution in spoken:
        stage.runtime.end(execution)
    stage.turn_until(lambda: books.state(job_id) == "ended")
    assert (await end_of(books, job_id)).finish_reason == "stop"
