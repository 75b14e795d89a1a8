"""A worker's life: what it says of itself, how it drains, what it does when its engine dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import ResponseError
from rq import Worker as RqWorker

from gpu_worker.books import Books
from gpu_worker.signals import StopSignals
from gpu_worker.worker import ENGINE_FAULT, REDIS_REFUSED
from shared.messages import LOADING, READY, UNAVAILABLE
from tests.conftest import heartbeats, until
from tests.gpu_worker import worker_stage
from tests.gpu_worker.jobs import SEED, admit, on_stage
from tests.gpu_worker.worker_stage import (
    SERVED,
    ScriptedRuntime,
    Stage,
    claimed,
    digests_of,
    record_of,
    stream_of,
)
from tests.scheduler.conftest import QUEUE, Deployment

books = worker_stage.fake_books

DOCUMENT_KEYS = {
    *("worker_id", "host", "pid", "state", "started_at_unix_ms", "image_ref"),
    *("requested_backend", "served_backend", "execution_engine", "accelerated_backend"),
    *("residency", "gpu_model", "gpu_model_label", "determinism_class", "cpu_fallback_reason"),
    *("artifact_id", "artifact_digest", "queue", "lanes", "in_flight"),
    *("memory_required_bytes", "memory_used_bytes", "utilization"),
    *("loaded_at_unix_ms", "load_latency_ms", "refusal"),
    *("tokenizer_loaded", "csm_config_loaded", "csm_model_loaded", "mimi_loaded"),
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn looks round soon."""
    for name in ("IDLE_WAIT_S", "BUSY_WAIT_S", "NEWCOMER_WAIT_S"):
        monkeypatch.setattr(f"gpu_worker.worker.{name}", 0.01)


def said_by(books: Deployment, stage: Stage) -> dict[str, Any]:
    """The newest document of the worker, {} when it has none."""
    return heartbeats(books.redis, books.settings.namespace).get(stage.worker_id, {})


def lanes_on_offer(books: Deployment) -> list[bytes]:
    members: Any = books.redis.zrange(books.keys.lanes(QUEUE), 0, -1)
    return list(members)


def is_seen_by_rq(books: Deployment, stage: Stage) -> bool:
    return stage.worker_id in {str(name) for name in _rq_workers(books)}


def _rq_workers(books: Deployment) -> Iterator[str]:
    for key in RqWorker.all_keys(connection=books.redis):
        yield key.removeprefix(RqWorker.redis_worker_namespace_prefix)


# What it says of itself


async def test_the_document_says_all_there_is(books: Deployment) -> None:
    """Every heartbeat carries the whole document, with what the runtime states of itself."""
    stage = on_stage(books)

    stage.turn()

    said = said_by(books, stage)
    assert said.keys() == DOCUMENT_KEYS | {"heartbeat_age_ms"}
    assert (said["state"], said["lanes"], said["in_flight"]) == ("ready", 2, 0)
    assert (said["worker_id"], said["pid"]) == (stage.worker_id, os.getpid())
    assert (said["artifact_id"], said["queue"]) == (SERVED.artifact_id, SERVED.queue)
    assert (said["memory_required_bytes"], said["memory_used_bytes"]) == (3, 4)
    assert said["refusal"] is None


async def test_no_two_workers_share_an_id(books: Deployment) -> None:
    """A worker that is started again is another worker, also within one process."""
    assert on_stage(books).worker_id != on_stage(books).worker_id


async def test_offers_no_lanes_while_loading(books: Deployment) -> None:
    """A loading worker is heard but takes nothing; it offers its lanes as soon as it is ready."""
    stage = on_stage(books)
    stage.runtime.become(LOADING)
    stage.turn()
    while_loading = (said_by(books, stage)["state"], lanes_on_offer(books))

    stage.runtime.become(READY)
    stage.turn()

    assert while_loading == ("loading", [])
    assert lanes_on_offer(books) == [f"{stage.worker_id}|2".encode()]


@pytest.mark.parametrize(("mode", "seen"), [("sync", False), ("background", True)])
async def test_registers_with_rq_by_start_up_mode(books: Deployment, mode: str, seen: bool) -> None:
    """A synchronous start registers once the model is there, a background start at once."""
    stage = on_stage(books, startup_load_mode=mode)
    stage.runtime.become(LOADING)
    stage.turn()
    while_loading = is_seen_by_rq(books, stage)

    stage.runtime.become(READY)
    stage.turn()

    assert while_loading is seen
    assert is_seen_by_rq(books, stage)


async def test_an_unavailable_worker_explains_itself(books: Deployment) -> None:
    """A worker that can't serve lives on, takes no job and says why."""
    stage = on_stage(books)
    stage.runtime.become(UNAVAILABLE, "csm_model_unavailable")
    books.worker("other")
    job_id = await admit(books)

    stage.turn(3)

    said = said_by(books, stage)
    assert said["state"] == "unavailable"
    assert said["refusal"] == {
        "code": "csm_model_unavailable",
        "reason": "why",
        "pending_phases": ["what_to_do"],
    }
    assert books.state(job_id) == "waiting"


async def test_puts_right_what_a_dead_worker_left(books: Deployment) -> None:
    """With no scheduler process alive, a worker finds the lapsed lease of another and goes on."""
    queue = replace(books.settings, reap_interval_ms=0)
    stage = Stage(books.redis, queue, ScriptedRuntime())
    dead = books.worker("dead")
    job_id = await admit(books)
    claimed(dead.claim("x" * 32))

    for _ in range(4):
        stage.turn()
        books.advance_ms(books.settings.lease_ms // 2)
    stage.turn_until(lambda: stage.runtime.submitted)

    assert books.field(job_id, "worker_id") == stage.worker_id
    assert books.field(job_id, "attempt") == "2"


# How it ends


async def test_finishes_its_jobs_when_told_to_stop(books: Deployment) -> None:
    """After SIGTERM nothing more is claimed, what runs is finished, and the registers are left."""
    books.worker("other")
    stage = on_stage(books)
    running = await admit(books, "running")
    life = stage.run()
    key = stage.runtime.wait_for_lane()

    stage.signals.count = 1
    await until(lambda: said_by(books, stage).get("state") == "draining")
    offered = [member for member in lanes_on_offer(books) if b"other" not in member]
    late = await admit(books, "late")
    stage.runtime.step(key)
    stage.runtime.end(key)

    assert life.wait() == 0
    assert offered == []
    assert books.field(running, "finish_reason") == "stop"
    assert books.state(late) == "waiting"
    assert said_by(books, stage) == {}
    assert not is_seen_by_rq(books, stage)
    assert stage.runtime.closed


async def test_an_idle_worker_stops_at_once(books: Deployment) -> None:
    """With nothing to finish, the grace period is not waited for."""
    stage = on_stage(books, drain_grace_ms=600_000)
    life = stage.run()
    await until(lambda: said_by(books, stage).get("state") == "ready")

    stage.signals.count = 1

    assert life.wait() == 0


async def test_hands_back_what_the_grace_period_leaves(books: Deployment) -> None:
    """What can't be finished in time goes to the front, as if it had never been claimed."""
    books.worker("other")
    stage = on_stage(books, drain_grace_ms=50)
    first = await admit(books, "first")
    life = stage.run()
    key = stage.runtime.wait_for_lane()
    second = await admit(books, "second")
    await until(lambda: len(stage.runtime.submitted) == 2)
    stage.runtime.step(key)

    stage.signals.count = 1

    assert life.wait() == 0
    assert [books.state(first), books.state(second)] == ["waiting", "waiting"]
    assert [books.field(first, "attempt"), books.field(first, "solo")] == ["0", None]
    assert stream_of(books, first) == ["claimed", record_of(SEED, 0)]
    assert set(books.listed()) == {first, second}
    assert claimed(books.worker("next").claim("x" * 32)).job_id == first


async def test_a_second_signal_hands_back_at_once(books: Deployment) -> None:
    """Told twice, the worker doesn't wait for what runs."""
    stage = on_stage(books, drain_grace_ms=600_000)
    job_id = await admit_to(books, stage)
    life = stage.run()
    stage.runtime.wait_for_lane()

    stage.signals.count = 2

    assert life.wait() == 0
    assert books.state(job_id) == "waiting"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_only_count(number: signal.Signals) -> None:
    """The handlers of both signals raise nothing, wherever they strike."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    signals = StopSignals()
    try:
        signals.install()
        signal.raise_signal(number)
        signal.raise_signal(number)
    finally:
        for each, old in before.items():
            signal.signal(each, old)

    assert signals.count == 2


async def test_a_dead_engine_hands_back_and_exits(books: Deployment) -> None:
    """What the engine made before it died is posted; its jobs go back to run alone."""
    stage = on_stage(books)
    job_id = await admit_to(books, stage)
    life = stage.run()
    key = stage.runtime.wait_for_lane()

    stage.runtime.step(key)
    stage.runtime.die()

    assert life.wait() == ENGINE_FAULT == 70
    assert stream_of(books, job_id) == ["claimed", record_of(SEED, 0)]
    assert [books.state(job_id), books.field(job_id, "solo")] == ["waiting", "1"]
    assert books.listed() == [job_id]
    assert said_by(books, stage) == {}


async def test_an_engine_that_hangs_is_left(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises nothing and stands: what it made is posted, its jobs go back, the process ends."""
    monkeypatch.setattr("gpu_worker.watchdog.STUCK_MS", 50.0)
    stage = on_stage(books)
    job_id = await admit_to(books, stage)
    life = stage.run()

    key = stage.runtime.wait_for_lane()
    stage.runtime.step(key)
    stage.runtime.hangs = True

    assert life.wait() == ENGINE_FAULT
    assert stream_of(books, job_id) == ["claimed", record_of(SEED, 0)]
    assert [books.state(job_id), books.field(job_id, "solo")] == ["waiting", "1"]
    assert stage.runtime.closed


async def test_a_poison_exhausts_itself(books: Deployment) -> None:
    """A job that kills two engines ends as worker_lost instead of going round."""
    lives: list[int] = []
    job_id = ""
    for _ in range(2):
        stage = on_stage(books)
        job_id = job_id or await admit_to(books, stage)
        life = stage.run()
        stage.runtime.wait_for_lane()
        stage.runtime.die()
        lives.append(life.wait())

    assert lives == [ENGINE_FAULT, ENGINE_FAULT]
    assert books.field(job_id, "finish_reason") == "worker_lost"


async def test_an_end_known_before_the_fault_is_stated(books: Deployment) -> None:
    """A job whose last frame came before the engine died has ended, and is not spoken again."""
    stage = on_stage(books)
    job_id = await admit_to(books, stage)
    life = stage.run()
    key = stage.runtime.wait_for_lane()

    stage.runtime.step(key)
    stage.runtime.end(key)
    stage.runtime.die()

    assert life.wait() == ENGINE_FAULT
    record = await books.results.read(job_id)
    assert record is not None
    assert record.end is not None
    assert record.end.terminal is not None
    assert record.end.terminal.backend == "cpu"
    assert record.end.terminal.codebook_frames_sha256 == digests_of(SEED, 1)[0]


async def test_a_defect_in_the_loop_hands_back_too(
    books: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected ends the process aloud, and no job waits for its lease."""
    stage = on_stage(books)
    job_id = await admit_to(books, stage)

    def broken(self: Books) -> None:
        if len(self):
            raise RuntimeError("a defect")

    monkeypatch.setattr(Books, "post", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        stage.worker.run()

    assert books.state(job_id) == "waiting"
    assert said_by(books, stage) == {}


@pytest.mark.parametrize("last_word", ["taken", "refused"])
async def test_a_redis_that_calls_a_command_wrong_costs_no_attempt(
    books: Deployment, monkeypatch: pytest.MonkeyPatch, last_word: str
) -> None:
    """No job is to blame for it: they go back as they came, or lapse if that is refused, too."""
    stage = on_stage(books)
    job_id = await admit_to(books, stage)

    def refused(self: Books, **_: Any) -> None:
        if len(self):
            raise ResponseError("ERR unknown command")

    monkeypatch.setattr(Books, "renew", refused)
    if last_word == "refused":
        monkeypatch.setattr(Books, "hand_back", refused)
    life = stage.run()

    assert life.wait() == REDIS_REFUSED == 69
    back = ("waiting", "0", None)
    left = ("running", "1", None)
    found = (books.state(job_id), books.field(job_id, "attempt"), books.field(job_id, "solo"))
    assert found == (back if last_word == "taken" else left)


async def admit_to(books: Deployment, stage: Stage) -> str:
    """A job for a worker whose life hasn't begun: another one answers for it at the door."""
    books.worker("door")
    job_id = await admit(books)
    books.worker("door", lanes=0)
    return job_id
