"""What one worker has done and how it stands, as metrics. Each call costs microseconds at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.messages import WORKER_STATES
from shared.metrics import FRAME_BUCKETS_S, WAIT_BUCKETS_S, Registry

if TYPE_CHECKING:
    from gpu_worker.facts import RuntimeFacts
    from gpu_worker.telemetry import Usage

LANE_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512)


class WorkerMetrics:
    """The metrics of one worker. Any thread may call."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        self._frames = registry.counter("frames_total", "Frames of 80 ms that were generated")
        self._step = registry.histogram(
            "frame_duration_seconds",
            "Time of one engine step, which makes a frame for each lane that speaks",
            FRAME_BUCKETS_S,
        )
        self._busy = registry.histogram(
            "batch_size", "Lanes that got a frame from one step", LANE_BUCKETS
        )
        self._first = registry.histogram(
            "first_frame_seconds", "From a claim to the first frame under it", WAIT_BUCKETS_S
        )
        self._ended = registry.counter("worker_jobs_total", "Jobs that ended here", "finish_reason")
        self._lost = registry.counter(
            "worker_leases_lost_total", "Jobs that were taken from this worker"
        )
        self._lanes = registry.gauge("worker_lanes", "Lanes of this worker")
        self._taken = registry.gauge("worker_lanes_busy", "Lanes that hold a job")
        self._memory = registry.gauge("worker_memory_bytes", "Memory in use on the device")
        self._load = registry.gauge("worker_load_seconds", "Time that the model took to load")
        self._utilization = registry.gauge(
            "worker_utilization_ratio", "Utilization of the device, NaN where unknown"
        )
        self._state = registry.gauge(
            "worker_state", "1 for the state that the worker is in, else 0", "state"
        )

    def step(self, seconds: float) -> None:
        self._step.observe(seconds)

    def spoke(self, frames: int) -> None:
        """One step made this many frames, one for each lane that speaks."""
        if frames:
            self._frames.inc(frames)
            self._busy.observe(frames)

    def ended(self, finish_reason: str, first_audio_ms: float | None) -> None:
        self._ended.labels(finish_reason).inc()
        if first_audio_ms is not None:
            self._first.observe(first_audio_ms / 1000)

    def lost(self) -> None:
        self._lost.inc()

    def stands(self, state: str, facts: RuntimeFacts, usage: Usage, busy: int) -> None:
        for each in WORKER_STATES:
            self._state.labels(each).set(each == state)
        self._lanes.set(facts.lanes)
        self._taken.set(busy)
        self._memory.set(_known(usage.memory_used_bytes))
        self._utilization.set(_known(usage.utilization))
        self._load.set(_known(facts.load_latency_ms) / 1000)


def _known(value: float | None) -> float:
    return float("nan") if value is None else value
