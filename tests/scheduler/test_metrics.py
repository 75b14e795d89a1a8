"""The queue's metrics: true, read anew for each scrape, and there when Redis is not."""

from __future__ import annotations

import pytest
import redis

from cli.redis_server import free_port
from scheduler.connections import connect
from scheduler.load import LoadSnapshot, QueueLoad
from scheduler.metrics import QueueMetrics, families
from shared.errors import SpeechError
from shared.metrics import Registry
from tests.exposition import promtool, samples
from tests.scheduler.conftest import QUEUE, Deployment, terminal


def scrape(client: redis.Redis) -> dict[tuple[str, ...], float]:
    return samples(Registry().exposition(QueueMetrics(client, "t").families()))


async def test_depth_and_lanes_are_those_of_now(deployment: Deployment) -> None:
    """What waits, what runs and what could run, each at the moment of the scrape."""
    work = deployment.worker(lanes=2)
    for number in range(3):
        await deployment.admit(f"r{number}")
    deployment.claim(work)

    heard = scrape(deployment.redis)

    assert heard["psionic_csm_redis_up",] == 1
    assert heard["psionic_csm_queue_depth", QUEUE] == 2
    assert heard["psionic_csm_requests_running", QUEUE] == 1
    assert heard["psionic_csm_queue_lanes", QUEUE] == 2
    assert heard["psionic_csm_jobs_admitted_total", QUEUE] == 3
    assert 0 <= heard["psionic_csm_queue_oldest_wait_seconds", QUEUE] < 60


async def test_ends_are_counted_by_reason(deployment: Deployment) -> None:
    """A job that ended is counted once, under its finish reason, and none is invented."""
    work = deployment.worker()
    await deployment.admit("r1")
    claim = deployment.claim(work)
    work.end(claim.job_id, claim.execution, terminal("length"))

    heard = scrape(deployment.redis)

    ends = {key[2]: value for key, value in heard.items() if key[0].endswith("jobs_ended_total")}
    assert ends == {
        "stop": 0,
        "length": 1,
        "cancelled": 0,
        "timeout": 0,
        "error": 0,
        "worker_lost": 0,
        "discarded": 0,
    }


async def test_a_lost_lease_and_its_retry_are_counted(deployment: Deployment) -> None:
    """A lapse counts as a lost lease and as a retry; lost again, it is no retry any more."""
    work = deployment.worker()
    job = (await deployment.admit("r1", timeout_ms=60_000)).job_id
    deployment.claim(work)
    deployment.lapse(job)
    once = scrape(deployment.redis)
    deployment.claim(work)
    for _ in range(100):
        deployment.redis.zadd(deployment.keys.listeners(job), {"g1|1": 9e15})
        if deployment.reap().lost:
            break
        deployment.advance_ms(max(50, deployment.settings.lease_ms // 4))
    twice = scrape(deployment.redis)

    names = "psionic_csm_leases_lost_total", "psionic_csm_jobs_retried_total"
    assert [once[name, QUEUE] for name in names] == [1, 1]
    assert [twice[name, QUEUE] for name in names] == [2, 1]
    assert twice["psionic_csm_jobs_ended_total", QUEUE, "worker_lost"] == 1


async def test_a_fault_is_a_retry_and_a_drain_is_none(deployment: Deployment) -> None:
    """Only an attempt that was used up counts as retried."""
    work = deployment.worker()
    await deployment.admit("r1")
    drained = deployment.claim(work)
    work.hand_back(drained.job_id, drained.execution)
    before = scrape(deployment.redis)
    failed = deployment.claim(work)
    work.hand_back(failed.job_id, failed.execution, fault=True)

    name = "psionic_csm_jobs_retried_total"
    assert before[name, QUEUE] == 0
    assert scrape(deployment.redis)[name, QUEUE] == 1


def test_workers_are_counted_by_state() -> None:
    """A state that nobody knows is counted as another one, never as a label of its own."""
    workers = tuple({"state": state} for state in ("ready", "ready", "draining", "x" * 100))

    heard = samples(Registry().exposition(families(LoadSnapshot(workers=workers))))

    alive = {key[1]: n for key, n in heard.items() if key[0] == "psionic_csm_workers_alive"}
    assert alive == {"loading": 0, "ready": 2, "unavailable": 0, "draining": 1, "other": 1}


def test_without_redis_only_that_is_told() -> None:
    """No number is made up while Redis is away."""
    away = connect(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)

    heard = scrape(away)

    ours = {key: value for key, value in heard.items() if key[0].startswith("psionic_csm_")}
    assert ours == {("psionic_csm_redis_up",): 0}


@pytest.mark.redis
async def test_a_redis_that_takes_no_writes_is_away(real: Deployment) -> None:
    """A replica, or one whose disk is full, answers still, but no worker can say that it is there:
    what is missing is Redis and not the workers.
    """
    real.worker()
    assert scrape(real.redis)["psionic_csm_redis_up",] == 1
    real.redis.replicaof("127.0.0.1", "1")

    heard = scrape(real.redis)
    with pytest.raises(SpeechError) as refused:
        await real.load.snapshot()
    real.redis.replicaof("no", "one")

    assert {key for key in heard if key[0].startswith("psionic_csm_")} == {
        ("psionic_csm_redis_up",)
    }
    assert heard["psionic_csm_redis_up",] == 0
    assert refused.value.code == "queue_unavailable"
    assert scrape(real.redis)["psionic_csm_redis_up",] == 1


def test_promtool_finds_no_fault() -> None:
    """Names, types and help are as Prometheus wants them."""
    queue = QueueLoad(QUEUE, ended_by={"stop": 1})

    told = Registry().exposition(families(LoadSnapshot({QUEUE: queue})))

    assert promtool("check", "metrics", given=told) == ""
