"""A job's attempt as spans, on the worker's side."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.gpu_worker import worker_stage
from tests.gpu_worker.worker_stage import ScriptedRuntime, Stage
from tests.scheduler.conftest import Deployment
from tests.spans import Kept, fact, id_of, parent_of, trace_of

fake_books = worker_stage.fake_books

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def kept() -> Kept:
    return Kept("worker")


@pytest.fixture
def stage(fake_books: Deployment, kept: Kept) -> Stage:
    stage = Stage(fake_books.redis, fake_books.settings, ScriptedRuntime(lanes=2), kept.spans)
    stage.turn()
    return stage


async def run(stage: Stage, books: Deployment, frames: int, traceparent: str) -> str:
    """A job from its claim to its end; its id."""
    admitted = await books.admit("r1", traceparent=traceparent)
    books.carrier.push(admitted.job_id)
    stage.turn_until(lambda: stage.runtime.submitted)
    for _ in range(frames):
        stage.runtime.step()
        stage.turn()
    stage.runtime.end(stage.runtime.submitted[0].key, "stop", "eos")
    stage.turn()
    return admitted.job_id


async def test_an_attempt_is_told_in_spans(
    stage: Stage, fake_books: Deployment, kept: Kept
) -> None:
    """Prefill up to the first frame and generation from there on, under the gateway's span."""
    traceparent = f"00-{TRACE}-{SPAN}-01"
    job = await run(stage, fake_books, 2, traceparent)

    attempt, prefill, generation = map(kept.named, ("attempt", "prefill", "generation"))
    assert len(kept.all()) == 3
    assert {trace_of(span) for span in kept.all()} == {TRACE}
    assert parent_of(attempt) == SPAN
    assert {parent_of(prefill), parent_of(generation)} == {id_of(attempt)}
    assert (fact(attempt, "job"), fact(attempt, "attempt")) == (job, 1)
    assert fact(attempt, "finish_reason") == "stop"
    assert fact(generation, "frames") == 2
    assert attempt.start_time is not None
    assert prefill.end_time is not None
    assert attempt.start_time < prefill.end_time


async def test_the_end_s_line_names_the_trace(stage: Stage, fake_books: Deployment) -> None:
    """Gateway's and worker's lines of one request are found by one id."""
    with capture_logs() as heard:
        await run(stage, fake_books, 1, f"00-{TRACE}-{SPAN}-00")

    assert next(line for line in heard if line["event"] == "job_ended")["trace_id"] == TRACE


async def test_a_trace_that_is_not_sampled_is_not_recorded(
    stage: Stage, fake_books: Deployment, kept: Kept
) -> None:
    """The caller decides, and pays nothing for a no."""
    await run(stage, fake_books, 1, f"00-{TRACE}-{SPAN}-00")

    assert kept.names() == []
