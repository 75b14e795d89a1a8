"""Audio formats and transports: what may be asked for, and the bytes of each.

``wav`` and ``pcm`` (s16le, 24 kHz, mono) need no encoder. The compressed formats that OpenAI's
clients may name are refused until an encoder for them is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.errors import SpeechError
from shared.wav import STREAMING_HEADER, wav_file

WAV: Final = "wav"
PCM: Final = "pcm"
CONTENT_TYPES: Final = {WAV: "audio/wav", PCM: "audio/pcm"}
RESPONSE_FORMATS: Final = tuple(CONTENT_TYPES)
NEED_AN_ENCODER: Final = ("mp3", "opus", "aac", "flac")

MULTIPART: Final = "multipart_mixed"
JSONL: Final = "jsonl_base64"
AUDIO: Final = "audio"
SSE: Final = "sse"
STREAM_FORMATS: Final = (MULTIPART, JSONL, AUDIO, SSE)
IMPLY_STREAMING: Final = (AUDIO, SSE)


@dataclass(frozen=True, slots=True)
class Transport:
    """How an answer leaves. ``stream_format`` None: in one piece."""

    stream_format: str | None
    response_format: str

    @property
    def audio_type(self) -> str:
        return CONTENT_TYPES[self.response_format]

    def head(self) -> bytes:
        """What goes before the first samples of a streamed body."""
        return STREAMING_HEADER if self.response_format == WAV else b""

    def whole(self, pcm: bytes) -> bytes:
        """The one-shot body around all samples."""
        return wav_file(pcm) if self.response_format == WAV else pcm


def choose_transport(
    stream: bool | None, stream_format: str | None, response_format: str | None
) -> Transport:
    """Raises SpeechError: ``invalid_stream_format``, ``conflicting_parameter``,
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
    _check_format(chosen)
    if not stream and stream_format not in IMPLY_STREAMING:
        return Transport(None, chosen)
    framing = stream_format or MULTIPART
    if framing in (MULTIPART, JSONL) and chosen != WAV:
        raise _unsupported(f"{framing} carries wav only")
    return Transport(framing, chosen)


def _check_format(name: str) -> None:
    if name in NEED_AN_ENCODER:
        raise _unsupported(f"no encoder for {name} is installed")
    if name not in RESPONSE_FORMATS:
        raise _unsupported(f"response_format takes {', '.join(RESPONSE_FORMATS)}")


def _unsupported(message: str) -> SpeechError:
    return SpeechError("unsupported_response_format", message, param="response_format")
