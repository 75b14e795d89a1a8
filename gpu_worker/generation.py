"""What goes into the engine and what comes out of it, free of torch and Redis.

The worker turns a claimed job into a :class:`Generation` and gets a list of :data:`Event` back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpu_worker.facts import RuntimeFacts

if TYPE_CHECKING:
    from gpu_worker.telemetry import Usage


@dataclass(frozen=True, slots=True)
class Generation:
    """One text to speak in one lane.

    ``key`` is the execution id, unique per claim. ``context_policy`` is ``"none"`` or
    ``"prompt_profile_only"``. ``temperature`` 0 and ``top_k`` 1 both mean greedy. ``replay`` holds
    the codes of frames that an earlier attempt already delivered, each 64 bytes (32 x u16
    little-endian): they are spoken again, not sampled and not emitted. A row ends after
    ``silence_stop_frames`` near-silent frames in a row; 0 turns that off. However it ends, it has
    failed if no frame of it was more than near-silent, unless ``max_frames`` cut it that early.
    """

    key: str
    text: str
    speaker: int
    voice_profile_id: str
    context_policy: str
    max_frames: int
    temperature: float
    top_k: int
    seed: int
    replay: tuple[bytes, ...] = ()
    silence_stop_frames: int = 0

    def __repr__(self) -> str:
        return f"Generation(key={self.key!r}, max_frames={self.max_frames})"


@dataclass(frozen=True, slots=True)
class Frame:
    """80 ms of speech. ``index`` counts from 0 and includes replayed frames.

    ``codes``: 64 bytes, 32 x u16 little-endian. ``pcm``: 3840 bytes, 1920 samples of s16le.
    """

    key: str
    index: int
    codes: bytes
    pcm: bytes

    def __repr__(self) -> str:
        return f"Frame(key={self.key!r}, index={self.index})"


@dataclass(frozen=True, slots=True)
class Ended:
    """A row ended by itself; its lane is free.

    ``finish_reason`` is ``stop`` (``stop_cause`` ``eos`` or ``silence``), ``length``, or ``error``
    with a ``failure_code`` of ``shared.errors.CODES``. ``frame_count`` includes replayed frames;
    ``prompt_frame_count`` is 0 when the prompt was refused before it was built.
    """

    key: str
    finish_reason: str
    stop_cause: str | None
    failure_code: str | None
    message: str
    frame_count: int
    prompt_frame_count: int


@dataclass(frozen=True, slots=True)
class Released:
    """The answer to a stop: nothing more comes for this key and its lane is free."""

    key: str


Event = Frame | Ended | Released


class SpeechRuntime(Protocol):
    """What the worker needs of ``gpu_worker.runtime.Runtime``, or of its stand-in."""

    @property
    def facts(self) -> RuntimeFacts: ...

    @property
    def rounds(self) -> int: ...

    def usage(self) -> Usage: ...

    def start(self) -> None: ...

    def submit(self, generation: Generation) -> None: ...

    def stop(self, key: str) -> None: ...

    def poll(self, timeout_s: float) -> list[Event]: ...

    def close(self, timeout_s: float) -> bool: ...
