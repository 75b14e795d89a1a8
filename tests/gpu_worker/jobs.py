"""Jobs for a worker on a stage: how they come, what becomes of them."""

from __future__ import annotations

from typing import Any, Final

from shared.messages import End, Terminal
from tests.gpu_worker.worker_stage import ScriptedRuntime, Stage
from tests.scheduler.conftest import QUEUE, Deployment

SEED: Final = 7


def on_stage(books: Deployment, lanes: int = 2, **changes: Any) -> Stage:
    """A worker that has not turned yet."""
    return Stage(books.redis, books.settings, ScriptedRuntime(lanes), **changes)


def ready_on_stage(books: Deployment, lanes: int = 2, **changes: Any) -> Stage:
    """A ready worker that has said so."""
    stage = on_stage(books, lanes, **changes)
    stage.turn()
    return stage


async def admit(books: Deployment, request_id: str = "r1", **options: Any) -> str:
    """The job's id, after its hint was pushed as a gateway does it.

    It is let in though the worker's lanes may have lapsed meanwhile, on a busy machine.
    """
    lanes = books.keys.lanes(QUEUE)
    books.redis.zadd(lanes, {"door|1": 9e15})
    try:
        admitted = await books.admit(request_id, seed=SEED, **options)
    finally:
        books.redis.zrem(lanes, "door|1")
    books.carrier.push(admitted.job_id)
    return admitted.job_id


def take(stage: Stage, jobs: int = 1) -> list[str]:
    """The executions of so many jobs, once the engine has them."""
    stage.turn_until(lambda: len(stage.runtime.submitted) >= jobs)
    return [generation.key for generation in stage.runtime.submitted]


async def speaking(books: Deployment, stage: Stage) -> tuple[str, str]:
    """A job whose first frame has been posted, and its execution."""
    job_id = await admit(books)
    (key,) = take(stage)
    stage.runtime.step(key)
    stage.turn()
    return job_id, key


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
