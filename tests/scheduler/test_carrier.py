"""RQ carries ids, refuses what is not ours, and never executes anything."""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from contextlib import nullcontext
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from rq import Queue, SimpleWorker
from rq.registry import StartedJobRegistry
from structlog.testing import capture_logs

from scheduler.carrier import SAID, Carrier
from scheduler.rq_records import MsgpackSerializer
from tests.conftest import until
from tests.scheduler.conftest import QUEUE, Deployment


async def test_ids_come_out_in_order(deployment: Deployment) -> None:
    """What is pushed is pulled, first in first out, and at_front goes first."""
    for job_id in ("a", "b"):
        deployment.carrier.push(job_id)
    deployment.carrier.push("c", at_front=True)

    assert [deployment.carrier.pull(None) for _ in range(4)] == ["c", "a", "b", None]


async def test_the_payload_is_the_id_alone(deployment: Deployment) -> None:
    """Nothing of the request is in RQ's record, and nothing in it is pickled."""
    deployment.carrier.push("t-1")

    data = zlib.decompress(deployment.redis.hget("rq:job:t-1", "data"))  # type: ignore[arg-type]

    assert MsgpackSerializer.loads(data) == ["psionic_csm.speak", None, ["t-1"], {}]


def foreign_function(deployment: Deployment) -> None:
    Queue(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer).enqueue(
        "os.system", "true", job_id="foreign"
    )


def pickled(deployment: Deployment) -> None:
    data = zlib.compress(pickle.dumps(("os.system", None, ("true",), {})))
    deployment.redis.hset("rq:job:foreign", mapping={"data": data, "status": "queued"})
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def random_bytes(deployment: Deployment) -> None:
    deployment.redis.hset("rq:job:foreign", mapping={"data": b"\xff\x00\x9c junk"})
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def wrong_type(deployment: Deployment) -> None:
    deployment.redis.set("rq:job:foreign", "not a hash")
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def without_data(deployment: Deployment) -> None:
    deployment.redis.hset("rq:job:foreign", mapping={"created_at": "yesterday"})
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def oversize(deployment: Deployment) -> None:
    deployment.redis.hset("rq:job:foreign", mapping={"data": b"x" * 1_000_000})
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def bomb(deployment: Deployment) -> None:
    """A few bytes that unpack to very many."""
    deployment.redis.hset("rq:job:foreign", mapping={"data": zlib.compress(bytes(900_000))})
    deployment.redis.rpush(deployment.carrier.list_key, "foreign")


def someone_elses_id(deployment: Deployment) -> None:
    Queue(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer).enqueue(
        "psionic_csm.speak", "another", job_id="foreign"
    )


@pytest.mark.parametrize(
    "poison",
    [
        foreign_function,
        pickled,
        random_bytes,
        wrong_type,
        without_data,
        oversize,
        bomb,
        someone_elses_id,
    ],
    ids=lambda poison: poison.__name__,
)
async def test_a_foreign_job_is_refused_and_the_next_served(
    deployment: Deployment, poison: object
) -> None:
    """A record that isn't ours is refused, counted and dropped; nothing of it is left."""
    poison(deployment)  # type: ignore[operator]
    deployment.carrier.push("t-1")

    assert [deployment.carrier.pull(None) for _ in range(3)] == [None, "t-1", None]

    assert deployment.redis.hget(deployment.keys.stats(QUEUE), "foreign_refused") == b"1"
    assert not deployment.redis.exists("rq:job:foreign")
    assert deployment.redis.lrange(f"rq:queue:{QUEUE}:intermediate", 0, -1) == [b"t-1"]


async def test_a_record_forgotten_while_it_is_looked_at_is_absent(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id may be in the list twice: what another worker removes between two looks is no error."""
    deployment.carrier.push("a")
    read = deployment.redis.hget

    def forget_first(key: str, field: str) -> Any:
        deployment.redis.delete("rq:job:a")
        return read(key, field)

    monkeypatch.setattr(deployment.redis, "hget", forget_first)

    assert deployment.carrier.pull(None) == "a"
    assert deployment.redis.hget(deployment.keys.stats(QUEUE), "foreign_refused") is None


async def test_rqs_own_clean_up_cannot_harm_a_live_job(deployment: Deployment) -> None:
    """The row in RQ's started registry is scored years ahead, so its clean-up leaves it alone."""
    deployment.carrier.birth("w1")
    deployment.carrier.push("t-1")
    deployment.carrier.started("t-1", deployment.carrier.pull(None))
    registry = StartedJobRegistry(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer)

    registry.cleanup()

    assert registry.get_job_ids(cleanup=False) == ["t-1"]
    assert deployment.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0


@pytest.mark.parametrize("is_lost", [False, True])
async def test_birth_leaves_our_time_limits_alone(
    real: Deployment, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """RQ must not make a worker wait longer for a Redis that hangs, nor if it is lost meanwhile."""
    before = real.redis.connection_pool.connection_kwargs["socket_timeout"]

    def lost(*_: object) -> None:
        raise RedisConnectionError("reset")

    if is_lost:
        monkeypatch.setattr(real.redis, "client_setname", lost)
    with pytest.raises(RedisConnectionError) if is_lost else nullcontext():
        real.carrier.birth("w1")

    assert real.redis.connection_pool.connection_kwargs["socket_timeout"] == before


async def test_birth_may_break_off_half_way(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lost Redis in the middle of it registers under its own name once more."""
    set_state, errors = SimpleWorker.set_state, [RedisConnectionError("reset")]

    def once_lost(self: SimpleWorker, *args: Any, **options: Any) -> None:
        if errors:
            raise errors.pop()
        set_state(self, *args, **options)

    monkeypatch.setattr(SimpleWorker, "set_state", once_lost)
    with pytest.raises(RedisConnectionError):
        deployment.carrier.birth("w1")

    deployment.carrier.birth("w1")

    assert deployment.redis.hget("rq:worker:w1", "state") == b"idle"


async def test_who_could_not_register_serves_and_shows_nothing(deployment: Deployment) -> None:
    """A job is spoken whether RQ knows its worker or not, and leaves no id behind."""
    deployment.carrier.push("t-1")

    deployment.carrier.started("t-1", deployment.carrier.pull(None))

    assert deployment.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0
    assert not deployment.redis.exists(f"rq:wip:{QUEUE}")


async def test_a_redis_that_cannot_serve_now_makes_no_id_foreign(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a record is ours is asked again later; it is neither refused nor dropped."""
    deployment.carrier.push("t-1")

    def busy(*_: object) -> None:
        raise ResponseError("BUSY Redis is busy running a script.")

    monkeypatch.setattr(deployment.redis, "hstrlen", busy)
    with pytest.raises(ResponseError, match="BUSY"):
        deployment.carrier.pull(None)

    assert deployment.redis.hget(deployment.keys.stats(QUEUE), "foreign_refused") is None
    assert deployment.redis.exists("rq:job:t-1")


async def test_what_answers_a_wait_at_once_is_not_asked_in_a_spin(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull waits as long as it was told to, though a proxy in between doesn't."""
    monkeypatch.setattr(deployment.redis, "blmove", lambda *_: None)
    began = time.monotonic()

    assert deployment.carrier.pull(0.2) is None

    assert time.monotonic() - began >= 0.19


async def test_a_flood_of_foreign_ids_floods_no_log(deployment: Deployment) -> None:
    """Some of them are logged, and all of them are counted."""
    deployment.redis.rpush(deployment.carrier.list_key, *(f"foreign {n}" for n in range(3 * SAID)))

    with capture_logs() as logs:
        for _ in range(3 * SAID):
            deployment.carrier.pull(None)

    assert [entry["event"] for entry in logs] == ["foreign_job_refused"] * SAID
    assert deployment.redis.hget(deployment.keys.stats(QUEUE), "foreign_refused") == b"150"


async def test_forgetting_takes_every_trace_of_several_deaths(deployment: Deployment) -> None:
    """Each worker that dies between RQ's dequeue and the claim leaves an entry; all of them go."""
    for _ in range(2):
        deployment.carrier.push("t-1")
        deployment.carrier.pull(None)

    deployment.carrier.forget(["t-1"])

    assert deployment.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0
    assert not deployment.redis.exists("rq:job:t-1")


async def test_who_showed_a_job_forgets_it_whole(deployment: Deployment) -> None:
    """All that this worker showed of a job goes from RQ, and nothing of another job."""
    carrier = deployment.carrier
    carrier.birth("w1")
    for job_id in ("t-1", "t-2"):
        carrier.push(job_id)
        carrier.started(job_id, carrier.pull(None))
    carrier.push("t-1")  # a second hint

    carrier.forget(["t-1"])

    left = [key.decode() for key in deployment.redis.scan_iter("rq:*t-1*")]
    assert left == []
    assert deployment.redis.lrange(carrier.list_key, 0, -1) == []
    registry = StartedJobRegistry(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer)
    assert registry.get_job_ids(cleanup=False) == ["t-2"]
    assert deployment.redis.scard("rq:worker:w1:executions") == 1


async def test_what_a_dead_worker_showed_is_forgotten_with_the_job(deployment: Deployment) -> None:
    """The worker of the second attempt takes the first one's row out of RQ's registry too."""
    lost = Carrier(deployment.redis, deployment.settings.namespace, QUEUE)
    for name, carrier in (("w1", lost), ("w2", deployment.carrier)):
        carrier.birth(name)
        carrier.push("t-1")
        carrier.started("t-1", carrier.pull(None))

    deployment.carrier.forget(["t-1"])

    registry = StartedJobRegistry(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer)
    assert registry.get_job_ids(cleanup=False) == []
    assert list(deployment.redis.scan_iter("rq:*t-1*")) == []


async def test_what_is_shown_of_a_job_that_had_ended_is_swept(deployment: Deployment) -> None:
    """A worker that stalled between claim and showing leaves rows that nobody's end will take; the
    reaper's sweep does, and leaves alone what lives.
    """
    work, carrier = deployment.worker(), deployment.carrier
    carrier.birth("w1")
    await deployment.admit("r1")
    live = deployment.claim(work)
    for job_id in ("ended-1", live.job_id):
        carrier.push(job_id)
        carrier.started(job_id, carrier.pull(None))
    carrier.push("ended-2")
    carrier.pull(None)  # and its worker dies

    carrier.forget_the_dead()

    registry = StartedJobRegistry(QUEUE, connection=deployment.redis, serializer=MsgpackSerializer)
    assert registry.get_job_ids(cleanup=False) == [live.job_id]
    assert list(deployment.redis.scan_iter("rq:*ended*")) == []
    assert deployment.redis.llen(f"rq:queue:{QUEUE}:intermediate") == 0


async def test_workers_show_in_rq(deployment: Deployment) -> None:
    """RQ's tools see a worker while it lives and not after its death."""
    from rq import Worker

    deployment.carrier.birth("w-visible")
    assert [worker.name for worker in Worker.all(connection=deployment.redis)] == ["w-visible"]

    deployment.carrier.death()

    assert Worker.all(connection=deployment.redis) == []


def clients(deployment: Deployment) -> str:
    rows: Any = deployment.redis.client_list()
    return " ".join(f"cmd={row['cmd']}" for row in rows)


async def test_a_blocking_pull_wakes_for_a_push(real: Deployment) -> None:
    """A waiting worker has the id as soon as it is pushed, not when it looks round."""
    pulled: list[tuple[str | None, float]] = []
    thread = threading.Thread(
        target=lambda: pulled.append((real.carrier.pull(30), time.monotonic())), daemon=True
    )
    thread.start()
    await until(lambda: "cmd=blmove" in clients(real))

    pushed_at = time.monotonic()
    real.carrier.push("t-1")
    thread.join(timeout=30)

    assert pulled[0][0] == "t-1"
    assert pulled[0][1] - pushed_at < 5
