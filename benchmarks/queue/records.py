"""What a run of ``psionic-csm bench queue`` measured, as frozen records that become JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from benchmarks.records import Bound
from shared.wav import FRAME_MS

FRAMES_PER_S: Final = 1000 / FRAME_MS
"""Of one stream at its listener's pace."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Samples in short, by nearest rank: what so many percent of them don't exceed."""

    p50: float
    p90: float
    p99: float
    most: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Raises ValueError for no samples."""
        if not samples:
            raise ValueError("nothing was measured")
        ordered = sorted(samples)

        def rank(share: float) -> float:
            return ordered[math.ceil(share * len(ordered)) - 1]

        return cls(rank(0.5), rank(0.9), rank(0.99), ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Host:
    """What the numbers were measured on. ``load_average`` is that of the last minute.

    ``redis``: its version and how it ran, in words.
    """

    processor: str
    cores: int
    python: str
    redis: str
    load_average_before: float
    load_average_after: float


@dataclass(frozen=True, slots=True)
class Door:
    """Requests at a gateway's door and the seconds of its processor that they took.

    ``waiting``: callers inside while refusals were measured.
    """

    admissions: int
    admission_cpu_s: float
    refusals: int
    refusal_cpu_s: float
    waiting: int

    @property
    def admissions_per_cpu_s(self) -> float:
        return self.admissions / self.admission_cpu_s

    @property
    def refusals_per_cpu_s(self) -> float:
        return self.refusals / self.refusal_cpu_s


@dataclass(frozen=True, slots=True)
class Cost:
    """What one thing, a frame or a job, costs beyond what an idle stack uses anyway.

    ``commands`` are Redis's, those inside scripts included, and ``calls`` the most frequent of
    them. ``in_bytes`` go to Redis, ``out_bytes`` come from it. ``gateway_cpu_s`` and
    ``worker_cpu_s`` are of the processes beside it.
    """

    count: int
    commands: float
    in_bytes: float
    out_bytes: float
    redis_cpu_s: float
    gateway_cpu_s: float
    worker_cpu_s: float
    calls: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Costs:
    """``streams`` spoke at once while ``frame`` was measured."""

    streams: int
    frame: Cost
    job: Cost

    @property
    def streams_per_core(self) -> float:
        """Streams at their listeners' pace whose frames fill one core of Redis."""
        return 1 / (self.frame.redis_cpu_s * FRAMES_PER_S)

    def streams_per_core_with_jobs(self, seconds: float) -> float:
        """As above, when every stream is a job of so many seconds of speech."""
        frames = seconds * FRAMES_PER_S
        job_s = self.job.redis_cpu_s + frames * self.frame.redis_cpu_s
        return seconds / job_s


@dataclass(frozen=True, slots=True)
class Server:
    """The same model behind one way to serve it: calls one after another, and several at once.

    ``cpu_s_per_job``: of every process of it, Redis included, while several called at once.
    """

    name: str
    alone_ms: Tail
    jobs_per_s: float
    cpu_s_per_job: float


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One run. ``cancel_frames``: from cancel to the next claim of the lane, in frames.

    ``notes`` says what was left out, and why.
    """

    host: Host
    pickup_ms: Tail
    cancel_frames: Tail
    door: Door
    costs: Costs
    frames_per_job: int
    at_once: int
    servers: tuple[Server, ...]
    seconds: float
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...]

    def over_ours(self, other: Server) -> float:
        """Its time of a lone call over ours."""
        return other.alone_ms.p50 / self.servers[0].alone_ms.p50
