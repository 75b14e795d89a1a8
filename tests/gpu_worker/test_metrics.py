"""A worker's metrics: what it made, how fast, and how it stands."""

from __future__ import annotations

from tests.exposition import promtool, samples
from tests.gpu_worker import worker_stage
from tests.gpu_worker.worker_stage import ScriptedRuntime, Stage
from tests.scheduler.conftest import Deployment

fake_books = worker_stage.fake_books


def heard(stage: Stage) -> dict[tuple[str, ...], float]:
    return samples(stage.worker.metrics.registry.exposition())


async def speak(stage: Stage, books: Deployment, frames: int, jobs: int = 1) -> None:
    for number in range(jobs):
        admitted = await books.admit(f"r{number}")
        books.carrier.push(admitted.job_id)
    stage.turn_until(lambda: len(stage.runtime.submitted) == jobs)
    for _ in range(frames):
        stage.runtime.step()
        stage.turn()
    for generation in stage.runtime.submitted:
        stage.runtime.end(generation.key, "stop", "eos")
    stage.turn()


async def test_frames_and_batches_are_counted(fake_books: Deployment) -> None:
    """Three steps of two lanes are six frames in three batches of two."""
    stage = Stage(fake_books.redis, fake_books.settings, ScriptedRuntime(lanes=2))
    stage.turn()

    await speak(stage, fake_books, frames=3, jobs=2)

    told = heard(stage)
    assert told["psionic_csm_frames_total",] == 6
    assert told["psionic_csm_batch_size_count",] == 3
    assert told["psionic_csm_batch_size_sum",] == 6
    assert told["psionic_csm_batch_size_bucket", "1.0"] == 0
    assert told["psionic_csm_batch_size_bucket", "2.0"] == 3


async def test_ends_are_counted_with_their_first_frames(fake_books: Deployment) -> None:
    """Each end counts under its reason, and the time to its first frame is observed once."""
    stage = Stage(fake_books.redis, fake_books.settings, ScriptedRuntime(lanes=2))
    stage.turn()

    await speak(stage, fake_books, frames=1)

    told = heard(stage)
    assert told["psionic_csm_worker_jobs_total", "stop"] == 1
    assert told["psionic_csm_first_frame_seconds_count",] == 1
    assert told["psionic_csm_worker_leases_lost_total",] == 0


async def test_how_it_stands_is_told(fake_books: Deployment) -> None:
    """Exactly one state is true, and it changes with the worker's."""
    stage = Stage(fake_books.redis, fake_books.settings, ScriptedRuntime(lanes=2))
    stage.turn()
    ready = heard(stage)
    stage.runtime.become("unavailable", "artifact_unavailable")
    stage.turn()
    unavailable = heard(stage)

    def states(told: dict[tuple[str, ...], float]) -> list[str]:
        return [key[1] for key, on in told.items() if key[0] == "psionic_csm_worker_state" and on]

    assert (states(ready), states(unavailable)) == (["ready"], ["unavailable"])
    assert ready["psionic_csm_worker_lanes",] == 2
    assert stage.worker.is_live
    assert not stage.worker.is_ready


async def test_promtool_finds_no_fault(fake_books: Deployment) -> None:
    """Names, types and help are as Prometheus wants them."""
    stage = Stage(fake_books.redis, fake_books.settings, ScriptedRuntime(lanes=2))
    stage.turn()
    await speak(stage, fake_books, frames=1)
    stage.worker.metrics.step(0.02)

    assert promtool("check", "metrics", given=stage.worker.metrics.registry.exposition()) == ""
