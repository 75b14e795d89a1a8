"""Audio formats and transports: what may be asked for, and the bytes of each.

``wav`` and ``pcm`` (s16le, 24 kHz, mono) need no encoder. The compressed formats that OpenAI's
clients may name are served where ``encoders`` finds theirs, and refused elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.encoders import ENCODINGS, Encoder, encode
from shared.errors import SpeechError
from shared.wav import STREAMING_HEADER, wav_header

WAV: Final = "wav"
PCM: Final = "pcm"
PLAIN_FORMATS: Final = (WAV, PCM)
CONTENT_TYPES: Final = {
    WAV: "audio/wav",
    PCM: "audio/pcm",
    **{name: encoding.content_type for name, encoding in ENCODINGS.items()},
}

MULTIPART: Final = "multipart_mixed"
JSONL: Final = "jsonl_base64"
AUDIO: Final = "audio"
SSE: Final = "sse"
STREAM_FORMATS: Final = (MULTIPART, JSONL, AUDIO, SSE)
IMPLY_STREAMING: Final = (AUDIO, SSE)


class Body(Protocol):
    """The audio of a streamed body, as its samples come."""

    def feed(self, pcm: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class Plain:
    """Samples as they are, after a head."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def feed(self, pcm: bytes) -> bytes:
        data, self._head = self._head + pcm, b""
        return data

    def finish(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class Transport:
    """How an answer leaves. ``stream_format`` None: in one piece."""

    stream_format: str | None
    response_format: str

    @property
    def audio_type(self) -> str:
        return CONTENT_TYPES[self.response_format]

    @property
    def is_encoded(self) -> bool:
        return self.response_format not in PLAIN_FORMATS

    def streamed(self) -> Body:
        """A streamed body, from its start. Raises SpeechError("internal_error")."""
        if self.is_encoded:
            return Encoder(self.response_format)
        return Plain(STREAMING_HEADER if self.response_format == WAV else b"")

    def head(self, data_bytes: int) -> bytes:
        """What comes before the samples of a one-shot body that is not encoded."""
        return wav_header(data_bytes) if self.response_format == WAV else b""

    def encoded(self, pcm: bytes) -> bytes:
        """The one-shot body of all samples, if it ``is_encoded``. Blocks for a while.

        Raises SpeechError("internal_error").
        """
        return encode(self.response_format, pcm)


def choose_transport(
    stream: bool | None,
    stream_format: str | None,
    response_format: str | None,
    served: Sequence[str],
) -> Transport:
    """``served`` are the response formats that can be made here.

    Raises SpeechError: ``invalid_stream_format``, ``conflicting_parameter``,
    ``unsupported_response_format``.
    """
    if stream_format is not None and stream_format not in STREAM_FORMATS:
        raise SpeechError(
            "invalid_stream_format",
            f"stream_format takes {', '.join(STREAM_FORMATS)}",
            param="stream_format",
        )
    if stream is False and stream_format in IMPLY_STREAMING:
        raise SpeechError(
            "conflicting_parameter",
            f"stream_format {stream_format} streams, and stream is false",
            param="stream",
        )
    chosen = WAV if response_format is None else response_format
    _check_format(chosen, served)
    if not stream and stream_format not in IMPLY_STREAMING:
        return Transport(None, chosen)
    framing = stream_format or MULTIPART
    if framing in (MULTIPART, JSONL) and chosen != WAV:
        raise _unsupported(f"{framing} carries wav only")
    return Transport(framing, chosen)


def _check_format(name: str, served: Sequence[str]) -> None:
    if name in served:
        return
    if name in CONTENT_TYPES:
        raise _unsupported(f"no encoder for {name} is installed")
    raise _unsupported(f"response_format takes {', '.join(served)}")


def _unsupported(message: str) -> SpeechError:
    return SpeechError("unsupported_response_format", message, param="response_format")
