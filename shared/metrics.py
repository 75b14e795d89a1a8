"""Metrics in Prometheus's text form: one prefix, seconds and ``_total``, labels that are bounded.

Each process has a registry of its own. What is true of a whole queue is not counted here but read
from Redis when somebody asks (``scheduler.metrics``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PREFIX: Final = "psionic_csm"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Upper bounds in seconds. Every 80 ms a frame is due: that is one of the bounds.
FRAME_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.12, 0.16, 0.32, 1.0)
WAIT_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30)


class Registry:
    """The metrics of one process, and what the system knows of the process itself."""

    def __init__(self) -> None:
        # Else a second series of each counter, which nobody here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._collectors = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._collectors)

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, namespace=PREFIX, registry=self._collectors)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, namespace=PREFIX, registry=self._collectors)

    def histogram(
        self, name: str, meaning: str, bounds: Sequence[float], *labels: str
    ) -> Histogram:
        return Histogram(
            name, meaning, labels, namespace=PREFIX, registry=self._collectors, buckets=bounds
        )

    def families(self, further: Iterable[Metric] = ()) -> Iterable[Metric]:
        """All that there is to tell now, and ``further`` metrics of this moment."""
        return chain(self._collectors.collect(), further)

    def exposition(self, further: Iterable[Metric] = ()) -> bytes:
        """What a scraper gets."""
        return generate_latest(_Told(self.families(further)))


class _Told(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
