"""What crosses the queue, as frozen dataclasses with a strict msgpack form.

``from_bytes`` raises :class:`MalformedMessage` for anything that is not exactly the message: an
unknown or missing key, a wrong type, a bool for an int. A worker refuses such a job, it never
guesses.
"""

from __future__ import annotations

import struct
import types
import typing
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Any, Final, Self

import msgpack

from shared.wav import CODEBOOKS, FRAME_BYTES

CODES_BYTES: Final = CODEBOOKS * 2
"""One frame's codes: 32 codebooks x unsigned 16-bit little-endian."""

_INDEX: Final = struct.Struct("<I")
_SAMPLES_AT: Final = _INDEX.size + CODES_BYTES

MAX_SEED: Final = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""

# Why a job ended: ``finish_reason``.
STOP: Final = "stop"
LENGTH: Final = "length"
CANCELLED: Final = "cancelled"
TIMEOUT: Final = "timeout"
ERROR: Final = "error"
WORKER_LOST: Final = "worker_lost"

# How a worker stands: ``state`` of its heartbeat.
LOADING: Final = "loading"
READY: Final = "ready"
UNAVAILABLE: Final = "unavailable"
DRAINING: Final = "draining"
WORKER_STATES: Final = (LOADING, READY, UNAVAILABLE, DRAINING)

# ``context_policy``: what the model hears before the text, nothing or the voice's own prompt.
CONTEXT_NONE: Final = "none"
CONTEXT_PROMPT: Final = "prompt_profile_only"

# ``priority``: whether a person waits for the answer. Batch work takes the lanes that are left.
INTERACTIVE: Final = "interactive"
BATCH: Final = "batch"

NOTHING: Final = "none"
"""The backend, engine or device of what does not serve."""
NOT_ACCELERATED: Final = "unavailable_fail_closed"
"""``accelerated_backend`` of what runs on a CPU or not at all."""


class MalformedMessage(ValueError):
    """Bytes that are not the message they claim to be."""


@cache
def _accepted_types(cls: type[Any]) -> dict[str, tuple[type, ...]]:
    hints = typing.get_type_hints(cls)
    return {field.name: _concrete(hints[field.name]) for field in fields(cls)}


@cache
def _optional(cls: type[Any]) -> dict[str, Any]:
    """The defaults of the fields that have one."""
    return {field.name: field.default for field in fields(cls) if field.default is not MISSING}


def _concrete(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, types.UnionType):
        return tuple(part for arg in typing.get_args(hint) for part in _concrete(arg))
    return (float, int) if hint is float else (hint,)


class Message:
    """A dataclass of scalars with a msgpack form.

    A field with a default is not sent while it has that value, so that processes of two versions
    understand each other as long as nobody uses what is new.
    """

    __slots__ = ()

    def to_bytes(self) -> bytes:
        optional = _optional(typing.cast(Any, type(self)))
        values = asdict(typing.cast(Any, self))
        sent = {key: value for key, value in values.items() if value != optional.get(key, ())}
        return typing.cast(bytes, msgpack.packb(sent))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        try:
            values = msgpack.unpackb(data, strict_map_key=True)
        except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
            raise MalformedMessage(f"{cls.__name__}: not msgpack") from error
        accepted = _accepted_types(typing.cast(Any, cls))
        optional = _optional(typing.cast(Any, cls))
        if not isinstance(values, dict) or {*values, *optional} != accepted.keys():
            raise MalformedMessage(f"{cls.__name__}: other keys than expected")
        for name, value in values.items():
            if type(value) not in accepted[name]:
                raise MalformedMessage(f"{cls.__name__}.{name}: wrong type")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class SpeechJob(Message):
    """A validated request, as the worker needs it. Holds the text, so it is never logged."""

    request_id: str
    cancellation_id: str | None
    input: str
    artifact_id: str
    voice_profile_id: str
    speaker: int
    context_policy: str
    max_frames: int
    temperature: float
    top_k: int
    seed: int
    traceparent: str | None = None
    """Where in whose trace this job stands; shapes nothing."""

    def __repr__(self) -> str:
        return f"SpeechJob(request_id={self.request_id!r})"


@dataclass(frozen=True, slots=True)
class Terminal(Message):
    """How a generation ended and what it ran on, as its worker states it.

    Digests are ``sha256:<hex>``: ``codebook_frames_sha256`` over every frame's 32 codes as u32
    little-endian, ``pcm16_sha256`` over the samples, ``wav_pcm16_digest`` over the one-shot WAV
    file. They are None when no frame was generated, and so is ``prompt_frame_count`` of a
    generation that was stopped from outside, whose engine does not state it.
    """

    finish_reason: str
    stop_cause: str | None
    failure_code: str | None
    message: str
    generated_frame_count: int
    prompt_frame_count: int | None
    codebook_frames_sha256: str | None
    pcm16_sha256: str | None
    wav_pcm16_digest: str | None
    worker_id: str
    requested_backend: str
    backend: str
    execution_engine: str
    residency: str
    accelerated_backend: str
    gpu_model: str
    cpu_fallback_reason: str | None
    runtime_image_ref: str
    determinism_class: str


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One 80 ms frame on a job's event stream. ``elapsed_ms`` counts from admission."""

    index: int
    codes: bytes
    pcm: bytes
    elapsed_ms: int = 0

    def pack(self) -> bytes:
        """The index as u32 little-endian, the codes, the samples."""
        return _INDEX.pack(self.index) + self.codes + self.pcm

    @classmethod
    def unpack(cls, packed: bytes, elapsed_ms: int = 0) -> Self:
        """Raises ValueError for anything but a whole frame."""
        if len(packed) != _SAMPLES_AT + FRAME_BYTES:
            raise ValueError("not a whole frame")
        (index,) = _INDEX.unpack_from(packed)
        codes, pcm = packed[_INDEX.size : _SAMPLES_AT], packed[_SAMPLES_AT:]
        return cls(index, codes, pcm, elapsed_ms)

    def __repr__(self) -> str:
        return f"FrameRecord(index={self.index})"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A worker took the job (again, if ``attempt`` is above 1)."""

    attempt: int
    worker_id: str
    queue_wait_ms: int
    admitted_ms: int
    """When the job was let in, on Redis's clock."""


@dataclass(frozen=True, slots=True)
class End:
    """The one terminal of a job. ``terminal`` is None when it ended outside a worker.

    Times are milliseconds on Redis's clock since admission: until the first claim, the first frame
    (None: no frame), and the end. ``abandoned``: nobody was listening any more.
    """

    finish_reason: str
    failure_code: str | None
    message: str
    attempt: int
    abandoned: bool
    queue_wait_ms: int
    first_audio_latency_ms: int | None
    full_generation_latency_ms: int
    terminal: Terminal | None


Event = Claimed | FrameRecord | End
