"""What a run measured, as frozen records that become JSON. Seconds, bytes, frames, positions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from benchmarks import arithmetic

GIVEN: Final = "as given"
"""In the place of a size: an artifact that was named."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Samples in short: the median, and the quartiles round it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Raises ValueError for no samples."""
        if not samples:
            raise ValueError("nothing was measured")
        low, _, high = (
            statistics.quantiles(samples, n=4, method="inclusive")
            if len(samples) > 1
            else [samples[0]] * 3
        )
        return cls(statistics.median(samples), low, high, len(samples))


@dataclass(frozen=True, slots=True)
class Machine:
    """What the numbers were measured on. ``load_average`` is that of the last minute."""

    processor: str
    cores: int
    threads: int
    vector_unit: str
    python: str
    torch: str
    moshi: str
    transformers: str | None
    load_average_before: float
    load_average_after: float


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that was measured and how it lay in memory. ``size`` is GIVEN for an artifact.

    ``weight_bytes_per_frame`` is what one frame of all lanes reads of the weights: the backbone
    once, the depth decoder once per codebook after the first.
    """

    size: str
    artifact_id: str
    origin: str
    dtype: str
    chunk: int
    parameters: int
    weight_bytes_per_frame: int

    @property
    def is_seeded(self) -> bool:
        return self.size != GIVEN


@dataclass(frozen=True, slots=True)
class Lanes:
    """Our whole frame step with every lane speaking: depth, sampling, codec, backbone."""

    lanes: int
    frame_s: Spread
    codec_s: Spread

    @property
    def frames_per_s(self) -> float:
        """Of all lanes together."""
        return arithmetic.frames_per_s(self.lanes, self.frame_s.median)

    @property
    def rtf(self) -> float:
        """Of each lane: time taken over audio made. Below 1 a listener never waits."""
        return arithmetic.rtf(self.frame_s.median)


@dataclass(frozen=True, slots=True)
class Oracle:
    """transformers' own generate loop at one batch size. It makes codes and no audio."""

    batch: int
    frame_s: Spread

    @property
    def frames_per_s(self) -> float:
        return arithmetic.frames_per_s(self.batch, self.frame_s.median)


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt through an empty lane. ``positions`` is what the speech can look back on."""

    name: str
    positions: int
    seconds: Spread

    @property
    def positions_per_s(self) -> float:
        return self.positions / self.seconds.median


@dataclass(frozen=True, slots=True)
class FirstAudio:
    """From submit to the first samples in an idle engine, the voice's context cached."""

    lanes: int
    plain_s: Spread
    prompted_s: Spread
    prompt_positions: int

    @property
    def prompted_over_plain(self) -> float:
        return self.prompted_s.median / self.plain_s.median


@dataclass(frozen=True, slots=True)
class Join:
    """What those who speak see while a newcomer's long prompt is taken in.

    ``undisturbed_s`` and ``chunk_s``: between two frames before it, and one chunk of prefill alone.
    ``gaps_s`` and ``longest_s``: between two frames during it. ``joining_frames`` is how many
    frames the others spoke meanwhile; below ``positions`` / chunk two chunks shared one gap.
    """

    lanes: int
    positions: int
    joining_frames: int
    chunks: int
    undisturbed_s: Spread
    chunk_s: Spread
    gaps_s: Spread
    longest_s: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """Where one frame's time goes, by the profiler. ``kernels`` counts operators in a frame.

    ``outside_share`` counts the profiler's own cost as outside. ``least_outside_share`` takes off
    what recording an operator costs, though part of that is inside: the truth lies between.
    """

    lanes: int
    outside_share: float
    least_outside_share: float
    kernels: int
    heaviest: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Loading:
    """A worker's load in a process of its own, warm-up included.

    ``base_rss_bytes``: before loading, with everything imported. ``kept_bytes``: weights, caches
    and codec, as the worker reports them. ``read_bytes``: through read calls, while loading.
    """

    seconds: float
    base_rss_bytes: int
    peak_rss_bytes: int
    kept_bytes: int
    file_bytes: int
    read_bytes: int
    dtype: str

    @property
    def peak_over_kept(self) -> float:
        return self.peak_rss_bytes / self.kept_bytes

    @property
    def reads_per_byte(self) -> float:
        return self.read_bytes / self.file_bytes


@dataclass(frozen=True, slots=True)
class Bound:
    """A promise and what was found. ``met`` is None where the size does not count for it."""

    name: str
    promised: str
    found: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """One run of ``psionic-csm bench engine``. ``notes`` says what was left out, and why."""

    machine: Machine
    subject: Subject
    read_bytes_per_s: Spread
    lanes: tuple[Lanes, ...]
    oracle: tuple[Oracle, ...]
    prefill: tuple[Prefill, ...]
    first_audio: FirstAudio
    join: Join
    overhead: Overhead
    loading: Loading
    peak_rss_bytes: int
    seconds: float
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...]

    @property
    def floor_s(self) -> float:
        """The shortest a frame can take, its weights read at the machine's bandwidth."""
        return arithmetic.floor_s(self.subject.weight_bytes_per_frame, self.read_bytes_per_s.median)

    def over_oracle(self, lanes: Lanes) -> float | None:
        """Our frames per second over transformers' at batch 1."""
        single = next((each for each in self.oracle if each.batch == 1), None)
        return lanes.frames_per_s / single.frames_per_s if single else None
