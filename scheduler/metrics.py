"""What is true of every queue of a namespace, as metrics: read from Redis when a scraper asks.

The scheduler and each gateway expose the same numbers, so they are to be read with ``max``, not
``sum``. The counters live in Redis and outlast every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from scheduler.connections import TROUBLE, reading
from scheduler.load import LoadSnapshot, read_load
from scheduler.scripts import Scripts
from shared.messages import WORKER_STATES
from shared.metrics import PREFIX

if TYPE_CHECKING:
    from redis import Redis

OTHER: Final = "other"


class QueueMetrics:
    """Reads the queues of one namespace, over a client that may block."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._scripts = Scripts(redis, namespace)

    def families(self) -> Iterator[Metric]:
        try:
            with reading(self._redis):
                snapshot = read_load(self._redis, self._scripts)
        except TROUBLE:
            return families(None)
        return families(snapshot)


def families(snapshot: LoadSnapshot | None) -> Iterator[Metric]:
    """The metrics of a snapshot; of None, which is Redis being away, only that it is."""
    yield _gauge("redis_up", "1 while Redis answers, else 0", 0 if snapshot is None else 1)
    if snapshot is not None:
        yield from _server(snapshot)
        yield from _gauges(snapshot)
        yield from _counters(snapshot)


def _server(snapshot: LoadSnapshot) -> Iterator[Metric]:
    yield _gauge(
        "redis_memory_ratio",
        "Used share of Redis's memory limit, 0 without a limit",
        snapshot.memory_ratio,
    )
    alive = GaugeMetricFamily(
        f"{PREFIX}_workers_alive", "Workers with a live heartbeat", labels=["state"]
    )
    states = Counter(str(worker.get("state")) for worker in snapshot.workers)
    for state in WORKER_STATES:
        alive.add_metric([state], states.pop(state, 0))
    alive.add_metric([OTHER], states.total())
    yield alive
    waiting = sum(gateway.waiting_callers for gateway in snapshot.gateways)
    yield _gauge("gateways_alive", "Gateways that renew their callers", len(snapshot.gateways))
    yield _gauge("waiting_callers", "Callers that wait, at all gateways", waiting)


def _gauges(snapshot: LoadSnapshot) -> Iterator[Metric]:
    depth = _per_queue("queue_depth", "Admitted jobs that wait for a lane")
    running = _per_queue("requests_running", "Jobs that hold a lane")
    lanes = _per_queue("queue_lanes", "Lanes of the ready workers")
    oldest = _per_queue("queue_oldest_wait_seconds", "How long the first in line has waited")
    estimate = _per_queue(
        "queue_estimated_wait_seconds", "Time until an interactive newcomer would get a lane"
    )
    error = _per_queue(
        "queue_estimated_wait_error_seconds", "Running mean of how far such estimates were off"
    )
    margin = _per_queue(
        "queue_deadline_margin_seconds",
        "How much longer than that estimate the wait is that deadlines are held against",
    )
    batch = _per_queue("queue_batch_depth", "Of the jobs that wait, those of priority batch")
    service = _per_queue("queue_service_seconds", "Running mean of a lane's time per job")
    for name, row in sorted(snapshot.queues.items()):
        depth.add_metric([name], row.depth)
        running.add_metric([name], row.in_flight)
        lanes.add_metric([name], row.lanes)
        oldest.add_metric([name], row.oldest_wait_ms / 1000)
        estimate.add_metric([name], row.estimated_wait_ms / 1000)
        error.add_metric([name], row.estimated_wait_error_ms / 1000)
        margin.add_metric([name], row.deadline_margin_ms / 1000)
        batch.add_metric([name], row.batch_depth)
        service.add_metric([name], row.mean_service_ms / 1000)
    yield from (depth, running, lanes, oldest, estimate, error, margin, batch, service)


def _counters(snapshot: LoadSnapshot) -> Iterator[Metric]:
    admitted = _counted("jobs_admitted", "Jobs that were let in", "queue")
    ended = _counted("jobs_ended", "Jobs that ended, by finish reason", "queue", "reason")
    retried = _counted(
        "jobs_retried", "Attempts that a lost or failed worker cost, and that were made up", "queue"
    )
    lost = _counted("leases_lost", "Leases that lapsed because their worker fell silent", "queue")
    for name, row in sorted(snapshot.queues.items()):
        admitted.add_metric([name], row.admitted)
        retried.add_metric([name], row.retried)
        lost.add_metric([name], row.leases_lost)
        for reason, count in row.ended_by.items():
            ended.add_metric([name, reason], count)
    yield from (admitted, ended, retried, lost)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, value=value)


def _per_queue(name: str, meaning: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=["queue"])


def _counted(name: str, meaning: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)
