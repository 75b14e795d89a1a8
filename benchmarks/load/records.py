"""What a run of ``psionic-csm bench load`` measured, as frozen records that become JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from benchmarks.queue.records import Host, Tail
from benchmarks.records import Bound
from shared.messages import LENGTH, STOP
from shared.wav import FRAME_MS


@dataclass(frozen=True, slots=True)
class Call:
    """One caller. Times in seconds, ``at_s`` from the beginning of its phase, others from sending.

    ``late_s``: how long after its moment it was sent. ``status`` 0: the connection broke. ``code``:
    of a refusal, or of an error after the first audio. ``queue_wait_s`` and ``service_s`` are the
    gateway's own statements: until the claim, and from the claim to the end.
    """

    at_s: float
    late_s: float
    frames: int
    timeout_s: float
    status: int
    code: str | None
    finish_reason: str | None = None
    first_audio_s: float | None = None
    total_s: float | None = None
    queue_wait_s: float | None = None
    service_s: float | None = None
    spoken_frames: int = 0

    @property
    def is_good(self) -> bool:
        return self.status == 200 and self.finish_reason in (STOP, LENGTH)

    @property
    def outcome(self) -> str:
        """In one word: ``ok``, a code, or what the connection did."""
        if self.is_good:
            return "ok"
        return self.code or ("connection broken" if self.status == 0 else f"status {self.status}")


@dataclass(frozen=True, slots=True)
class Sample:
    """The gateway's ``/psionic/csm/load`` at one moment of a phase."""

    at_s: float
    depth: int
    in_flight: int
    estimated_wait_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """How good the published wait was over one phase, in seconds.

    ``bias``: estimate less truth, in the mean. ``model_*``: the same of the replay's own waits for
    those who were let in, which says how far its verdicts can be trusted.
    """

    calls: int
    mean_abs: float
    bias: float
    p90_abs: float
    mean_wait: float
    model_mean_abs: float
    model_bias: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusals of one code, and how many of them would have been done in time if let in."""

    code: str
    count: int
    meetable: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the stack over a phase: the share of a core that it had, and the share of the
    time for which it was ready and no core was free."""

    name: str
    busy: float
    starved: float


@dataclass(frozen=True, slots=True)
class Phase:
    """One load, held for ``seconds``. Rates and goodput leave out the first ``warm_up_s``.

    ``most_depth`` is of the samples and of Redis's own count where it could be read.
    ``overdue``: let in, and not done within its timeout.
    """

    name: str
    load: float
    rate: float
    seconds: float
    warm_up_s: float
    calls: tuple[Call, ...]
    samples: tuple[Sample, ...]
    gaps_s: Tail | None
    health_s: Tail | None
    most_depth: int
    estimate: Estimate | None
    refused: tuple[Refused, ...]
    processes: tuple[Process, ...] = ()

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(call.outcome for call in self.calls)

    @property
    def statuses(self) -> set[int]:
        return {call.status for call in self.calls}

    @property
    def good(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.is_good)

    @property
    def spoilt(self) -> int:
        """Let in, answered with 200, and not spoken to their end."""
        return sum(call.status == 200 and not call.is_good for call in self.calls)

    @property
    def overdue(self) -> int:
        return sum(call.code in ("queue_timeout", "generation_timeout") for call in self.calls)

    @property
    def goodput(self) -> float:
        """Calls a second that were spoken to their end in the measured part."""
        return len(self._measured) / (self.seconds - self.warm_up_s)

    @property
    def good_speech(self) -> float:
        """Seconds of speech a second, of the same calls: as many streams at their own pace."""
        frames = sum(call.spoken_frames for call in self._measured)
        return frames * FRAME_MS / 1000 / (self.seconds - self.warm_up_s)

    @property
    def _measured(self) -> list[Call]:
        """Ends within the phase, its warm-up left out."""
        ends = ((call, call.at_s + call.late_s + (call.total_s or 0)) for call in self.good)
        return [call for call, end_s in ends if self.warm_up_s <= end_s <= self.seconds]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One run. ``step_s`` is a frame's time in a lane. ``balance`` says what the checker found:
    None where it could not look, empty when the books balance."""

    host: Host
    url: str
    lanes: int
    step_s: float
    depth_bound: int | None
    mix: str
    timeouts_s: tuple[float, ...]
    phases: tuple[Phase, ...]
    balance: tuple[str, ...] | None
    seconds: float
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...]
