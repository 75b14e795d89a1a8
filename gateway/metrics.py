"""What one gateway has answered and how fast, as metrics.

A code names what came of a request: ``ok``, a code of ``shared.errors``, or ``client_gone``. Its
``type`` is that of the code's family, so that an alert need not list codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

from gateway.schema import MODES, OUTCOMES
from shared.clock import monotonic_ms
from shared.errors import (
    BACKEND_UNAVAILABLE,
    CODES,
    GENERATION,
    NO_CAPACITY,
    OVERLOADED,
    SERVER,
    TIMEOUT,
)
from shared.messages import Claimed
from shared.metrics import FRAME_BUCKETS_S, WAIT_BUCKETS_S, Registry

OK: Final = "ok"
CLIENT_GONE: Final = "client_gone"
OURS: Final = (OVERLOADED, SERVER, GENERATION, BACKEND_UNAVAILABLE, TIMEOUT)
"""Families of what is not the caller's fault. They are there from the start with a count of 0, so
that the first of them is an increase."""


class GatewayMetrics:
    """The metrics of one gateway. ``speech_routes`` are the paths that speak."""

    def __init__(self, speech_routes: tuple[str, ...]) -> None:
        self._speech_routes = speech_routes
        self.registry = registry = Registry()
        self._requests = registry.counter(
            "requests_total", "Answers by route and by what came of it", "route", "type", "code"
        )
        self._rejected = registry.counter(
            "requests_rejected_total", "Speech requests turned away for want of capacity", "reason"
        )
        self._duration = registry.histogram(
            "request_duration_seconds", "From arrival to the last byte", WAIT_BUCKETS_S, "route"
        )
        self._bytes = registry.counter("response_bytes_total", "Bytes of bodies sent", "route")
        self._open = registry.gauge("open_requests", "Speech requests that are being answered")
        self._waited = registry.histogram(
            "queue_duration_seconds", "From admission to the first claim", WAIT_BUCKETS_S
        )
        self._first = registry.histogram(
            "time_to_first_chunk_seconds",
            "From arrival to the first frame that the gateway has for the caller",
            WAIT_BUCKETS_S,
            "delivery",
        )
        self._gaps = registry.histogram(
            "inter_chunk_seconds", "Between two frames of a stream", FRAME_BUCKETS_S
        )
        self._business_outcomes = registry.counter(
            "business_outcomes_total", "What callers' business made of speech", "outcome", "mode"
        )
        for outcome, mode in product(OUTCOMES, MODES):
            self._business_outcomes.labels(outcome, mode)
        for code, spec in CODES.items():
            if spec.type in OURS:
                for route in speech_routes:
                    self._requests.labels(route, spec.type, code)
            if spec.type in NO_CAPACITY:
                self._rejected.labels(code)

    def foresee_defects(self, routes: Iterable[str]) -> None:
        """Any route may have a defect, not those alone that speak."""
        for code in (code for code, spec in CODES.items() if spec.type == SERVER):
            for route in routes:
                self._requests.labels(route, SERVER, code)

    def answered(self, route: str, code: str, seconds: float, sent_bytes: int) -> None:
        type_ = CODES[code].type if code in CODES else code
        self._requests.labels(route, type_, code).inc()
        self._duration.labels(route).observe(seconds)
        self._bytes.labels(route).inc(sent_bytes)

    def speaks(self, route: str) -> bool:
        return route in self._speech_routes

    def rejected(self, code: str) -> None:
        self._rejected.labels(code).inc()

    def outcome_recorded(self, outcome: str, mode: str) -> None:
        self._business_outcomes.labels(outcome, mode).inc()

    def inside(self, open_requests: int) -> None:
        self._open.set(open_requests)

    def waited(self, claimed: Claimed) -> None:
        """A job of this gateway's was claimed; only its first attempt ends its wait."""
        if claimed.attempt == 1:
            self._waited.observe(claimed.queue_wait_ms / 1000)

    def pace(self, *, streamed: bool, arrived_ms: float) -> Pace:
        return Pace(self, streamed, arrived_ms)

    def first(self, seconds: float, *, streamed: bool) -> None:
        self._first.labels("stream" if streamed else "one_shot").observe(seconds)

    def gap(self, seconds: float) -> None:
        self._gaps.observe(seconds)


class Pace:
    """When the frames of one answer come, from the arrival of its request."""

    def __init__(self, metrics: GatewayMetrics, streamed: bool, arrived_ms: float) -> None:
        self._metrics = metrics
        self._streamed = streamed
        self._last_ms = arrived_ms
        self._frames = 0

    def frame(self) -> None:
        now = monotonic_ms()
        seconds = (now - self._last_ms) / 1000
        if self._frames == 0:
            self._metrics.first(seconds, streamed=self._streamed)
        elif self._streamed:
            self._metrics.gap(seconds)
        self._frames += 1
        self._last_ms = now
