"""Stream framings: the exact bytes of each event in each transport.

multipart_mixed  JSON and audio/wav parts between fixed boundaries
jsonl_base64     one JSON object a line, audio as base64 of a WAV file
sse              OpenAI's speech.audio.delta and speech.audio.done, audio as base64
audio            the body alone; an end in failure is a broken transfer
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.envelope import flag
from gateway.formats import JSONL, MULTIPART, SSE, Transport
from shared.messages import FrameRecord
from shared.wav import FRAME_MS, wav_file

BOUNDARY: Final = "psionic-csm-stream"
STREAMING_MODE: Final = "generation_time_windowed"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One frame on its way out. ``final``: it is known to be the last as it is sent."""

    frame: FrameRecord
    final: bool

    @property
    def wav(self) -> bytes:
        return wav_file(self.frame.pcm)


class Framing(Protocol):
    """How one transport says each event. ``error`` None: by breaking the transfer off.

    ``tail`` is the audio that was held back until all frames were there.
    """

    content_type: str

    def start(self) -> bytes: ...
    def audio(self, chunk: Chunk) -> bytes: ...
    def tail(self) -> bytes: ...
    def fallback(self, document: dict[str, Any]) -> bytes: ...
    def terminal(self, document: dict[str, Any]) -> bytes: ...
    def error(self, document: dict[str, Any]) -> bytes | None: ...


def framing_for(transport: Transport) -> Framing:
    if transport.stream_format == MULTIPART:
        return MultipartMixed()
    if transport.stream_format == JSONL:
        return JsonlBase64()
    if transport.stream_format == SSE:
        return ServerSentEvents(transport)
    return RawAudio(transport)


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _start(chunk_transport: str) -> dict[str, Any]:
    return {
        "event": "start",
        "encoding": "wav",
        "chunk_transport": chunk_transport,
        "streaming_mode": STREAMING_MODE,
    }


class MultipartMixed:
    """Facts as JSON parts, frames as WAV parts with theirs in headers."""

    content_type = f"multipart/mixed; boundary={BOUNDARY}"

    def start(self) -> bytes:
        return self._json_part(_start(MULTIPART))

    def audio(self, chunk: Chunk) -> bytes:
        wav, frame = chunk.wav, chunk.frame
        return _part(
            wav,
            "Content-Type: audio/wav",
            f"X-Psionic-Chunk-Index: {frame.index}",
            f"X-Psionic-Chunk-Bytes: {len(wav)}",
            f"X-Psionic-Final-Chunk: {flag(chunk.final)}",
            f"X-Psionic-Chunk-Duration-Ms: {FRAME_MS}",
            f"X-Psionic-Generated-Frame-Count: {frame.index + 1}",
            f"X-Psionic-Chunk-Elapsed-Ms: {frame.elapsed_ms}",
        )

    def tail(self) -> bytes:
        return b""

    def fallback(self, document: dict[str, Any]) -> bytes:
        return self._json_part({"event": "fallback", **document})

    def terminal(self, document: dict[str, Any]) -> bytes:
        return self._json_part({"event": "terminal", **document}) + self._close()

    def error(self, document: dict[str, Any]) -> bytes:
        return self._json_part({"event": "error", **document}) + self._close()

    def _json_part(self, document: dict[str, Any]) -> bytes:
        return _part(_json(document), "Content-Type: application/json")

    def _close(self) -> bytes:
        return f"--{BOUNDARY}--\r\n".encode()


def _part(payload: bytes, *header_lines: str) -> bytes:
    head = "\r\n".join((f"--{BOUNDARY}", *header_lines, "", ""))
    return head.encode() + payload + b"\r\n"


class JsonlBase64:
    """Every event a line of JSON, frames as WAV in base64."""

    content_type = "application/x-ndjson"

    def start(self) -> bytes:
        return self._line(_start(JSONL))

    def audio(self, chunk: Chunk) -> bytes:
        wav, frame = chunk.wav, chunk.frame
        return self._line(
            {
                "event": "audio",
                "content_type": "audio/wav",
                "encoding": "wav",
                "chunk_index": frame.index,
                "chunk_bytes": len(wav),
                "duration_ms": FRAME_MS,
                "generated_frame_count": frame.index + 1,
                "elapsed_ms": frame.elapsed_ms,
                "final_chunk": chunk.final,
                "data_base64": base64.b64encode(wav).decode(),
            }
        )

    def tail(self) -> bytes:
        return b""

    def fallback(self, document: dict[str, Any]) -> bytes:
        return self._line({"event": "fallback", **document})

    def terminal(self, document: dict[str, Any]) -> bytes:
        return self._line({"event": "terminal", **document, "chunk_transport": JSONL})

    def error(self, document: dict[str, Any]) -> bytes:
        return self._line({"event": "error", **document})

    def _line(self, document: dict[str, Any]) -> bytes:
        return _json(document) + b"\n"


class ServerSentEvents:
    """The deltas' audio, joined, is the body that ``audio`` would send.

    Raises SpeechError("internal_error") when that can't be encoded.
    """

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, transport: Transport) -> None:
        self._body = transport.streamed()

    def start(self) -> bytes:
        return b""

    def audio(self, chunk: Chunk) -> bytes:
        return self._delta(self._body.feed(chunk.frame.pcm))

    def tail(self) -> bytes:
        return self._delta(self._body.finish())

    def fallback(self, document: dict[str, Any]) -> bytes:
        return self._event({"type": "fallback", **document})

    def terminal(self, document: dict[str, Any]) -> bytes:
        return self._event({"type": "speech.audio.done", **document})

    def error(self, document: dict[str, Any]) -> bytes:
        return self._event({"type": "error", **document})

    def _delta(self, data: bytes) -> bytes:
        if not data:
            return b""
        audio = base64.b64encode(data).decode()
        return self._event({"type": "speech.audio.delta", "audio": audio})

    def _event(self, document: dict[str, Any]) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (document["type"].encode(), _json(document))


class RawAudio:
    """Raises SpeechError("internal_error") when the body can't be encoded."""

    def __init__(self, transport: Transport) -> None:
        self.content_type = transport.audio_type
        self._body = transport.streamed()

    def start(self) -> bytes:
        return b""

    def audio(self, chunk: Chunk) -> bytes:
        return self._body.feed(chunk.frame.pcm)

    def tail(self) -> bytes:
        return self._body.finish()

    def fallback(self, document: dict[str, Any]) -> bytes:
        return b""

    def terminal(self, document: dict[str, Any]) -> bytes:
        return b""

    def error(self, document: dict[str, Any]) -> None:
        return None
