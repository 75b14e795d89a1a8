"""The four stream framings, read to the byte. All raise Broken for what breaks the contract.

A stream is read as events: ``event`` names each, ``pcm`` is the audio of one that has any.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from cli.conformance.promise import Broken, Declined, promised, same
from cli.conformance.shapes import fits
from cli.conformance.wire import is_allowed
from gateway import answers
from shared.wav import FRAME_BYTES, FRAME_MS, HEADER_BYTES, STREAMING_HEADER, wav_header

BOUNDARY: Final = b"psionic-csm-stream"
DASH: Final = b"--" + BOUNDARY
AUDIO_HEADS: Final = (
    "content-type",
    "x-psionic-chunk-index",
    "x-psionic-chunk-bytes",
    "x-psionic-final-chunk",
    "x-psionic-chunk-duration-ms",
    "x-psionic-generated-frame-count",
    "x-psionic-chunk-elapsed-ms",
)
DELTA: Final = "speech.audio.delta"
DONE: Final = "speech.audio.done"
STREAM_EVENTS: Final[dict[str, type[BaseModel]]] = {
    "start": answers.StartEvent,
    "fallback": answers.FallbackEvent,
    "terminal": answers.TerminalEvent,
    "error": answers.ErrorEvent,
}
SSE_EVENTS: Final[dict[str, type[BaseModel]]] = {
    "fallback": answers.SpeechAudioFallback,
    DONE: answers.SpeechAudioDone,
    "error": answers.SpeechAudioError,
}


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    document: dict[str, Any]
    pcm: bytes = b""


def multipart(body: bytes) -> list[Event]:
    """The parts of a whole ``multipart_mixed`` body."""
    return list(_parts(body))


def _parts(body: bytes) -> Iterator[Event]:
    at = 0
    while not body.startswith(DASH + b"--", at):
        promised(body.startswith(DASH + b"\r\n", at), "a part does not begin with the boundary")
        end = body.find(b"\r\n\r\n", at)
        promised(end >= 0, "a part has no end of its head")
        heads = _heads(body[at + len(DASH) + 2 : end])
        start = end + 4
        if heads.get("content-type") == "application/json":
            stop = body.find(b"\r\n", start)
            promised(stop >= 0, "the body ends within a part")
            yield _json_event(body[start:stop])
        else:
            stop = start + _chunk_bytes(heads)
            yield _audio_part(heads, body[start:stop])
        promised(body[stop : stop + 2] == b"\r\n", "a part does not end where it says")
        at = stop + 2
    same("what follows the last part", DASH + b"--\r\n", body[at:])


def _heads(lines: bytes) -> dict[str, str]:
    found = {}
    for line in lines.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(": ")
        found[name.lower()] = value
    return found


def _chunk_bytes(heads: dict[str, str]) -> int:
    same("an audio part's headers", AUDIO_HEADS, tuple(heads))
    same("an audio part's type", "audio/wav", heads["content-type"])
    return _whole(heads["x-psionic-chunk-bytes"])


def _audio_part(heads: dict[str, str], wav: bytes) -> Event:
    final = heads["x-psionic-final-chunk"]
    promised(final in ("true", "false"), "X-Psionic-Final-Chunk is neither true nor false")
    document = {
        "chunk_index": _whole(heads["x-psionic-chunk-index"]),
        "chunk_bytes": _whole(heads["x-psionic-chunk-bytes"]),
        "duration_ms": _whole(heads["x-psionic-chunk-duration-ms"]),
        "generated_frame_count": _whole(heads["x-psionic-generated-frame-count"]),
        "elapsed_ms": _whole(heads["x-psionic-chunk-elapsed-ms"]),
        "final_chunk": final == "true",
    }
    return Event("audio", document, _samples(wav))


def _whole(text: str) -> int:
    promised(text.isascii() and text.isdigit(), "a part's header is no number")
    return int(text)


def jsonl(body: bytes) -> list[Event]:
    """The lines of a whole ``jsonl_base64`` body."""
    promised(body.endswith(b"\n"), "the last line has no end")
    return [line_event(line) for line in body[:-1].split(b"\n")]


def line_event(line: bytes) -> Event:
    """One line of ``jsonl_base64``."""
    document = _object(line)
    if document.get("event") != "audio":
        return _json_event(line)
    fits(answers.AudioEvent, document, "an audio event")
    return Event("audio", document, _samples(_decoded(document["data_base64"])))


def sse(body: bytes) -> list[Event]:
    """The events of a whole ``sse`` body; deltas are the pieces of a streamed WAV file."""
    promised(body.endswith(b"\n\n"), "the last event has no end")
    return [_server_sent(block) for block in body[:-2].split(b"\n\n")]


def _server_sent(block: bytes) -> Event:
    first, _, second = block.partition(b"\n")
    is_framed = first.startswith(b"event: ") and second.startswith(b"data: ")
    promised(is_framed and b"\n" not in second, "an event is not one event: and one data: line")
    document = _object(second.removeprefix(b"data: "))
    kind = first.removeprefix(b"event: ").decode("latin-1")
    same("an event's type", kind, document.get("type"))
    if kind == DELTA:
        fits(answers.SpeechAudioDelta, document, "a delta")
        return Event("audio", document, _decoded(document["audio"]))
    promised(kind in SSE_EVENTS, "there is an event of a name that is not in the contract")
    fits(SSE_EVENTS[kind], document, f"the event {kind}")
    return Event("terminal" if kind == DONE else kind, document)


def streamed_wav(body: bytes) -> bytes:
    """The samples of a WAV file whose head leaves its length open."""
    promised(body[:HEADER_BYTES] == STREAMING_HEADER, "the head is not that of a streamed WAV file")
    return body[HEADER_BYTES:]


def chunked(events: list[Event]) -> bytes:
    """The samples of chunks that count as they should: from 0, one frame each."""
    audio = [event for event in events if event.kind == "audio"]
    for index, event in enumerate(audio):
        said = event.document
        same("chunk_index", index, said["chunk_index"])
        same("chunk_bytes", HEADER_BYTES + len(event.pcm), said["chunk_bytes"])
        same("a chunk's samples", FRAME_BYTES, len(event.pcm))
        same("duration_ms", FRAME_MS, said["duration_ms"])
        same("generated_frame_count", index + 1, said["generated_frame_count"])
        is_last = index + 1 == len(audio)
        promised(is_last or said["final_chunk"] is False, "final_chunk is true before the last")
    return b"".join(event.pcm for event in audio)


def closed(events: list[Event], *, starts: bool) -> dict[str, Any]:
    """The terminal of a stream that has exactly one, after everything else.

    Raises Declined where an error stands in its place that the contract allows.
    """
    kinds = [event.kind for event in events]
    if starts:
        promised(kinds[:1] == ["start"] and kinds.count("start") == 1, "it does not start once")
    if kinds[-1:] == ["error"] and kinds.count("error") == 1 and "terminal" not in kinds:
        raise failed_with(str(events[-1].document["error"]["code"]))
    promised("error" not in kinds, "there is an error event beside its end")
    same("the number of terminals", 1, kinds.count("terminal"))
    same("the last event", "terminal", kinds[-1])
    promised("audio" in kinds, "it has no audio")
    return events[-1].document


def failed_with(code: str) -> Declined | Broken:
    """What it means that a stream which had begun failed with this code."""
    return Declined(code) if is_allowed(code) else Broken("it ended with the error {}", code)


def _json_event(data: bytes) -> Event:
    document = _object(data)
    kind = document.get("event")
    promised(kind in STREAM_EVENTS, "there is an event of a name that is not in the contract")
    fits(STREAM_EVENTS[str(kind)], document, f"the event {kind}")
    return Event(str(kind), document)


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise Broken("an event is no JSON") from error
    promised(isinstance(document, dict), "an event is no object")
    return dict(document)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Broken("an event's audio is no base64") from error


def _samples(wav: bytes) -> bytes:
    samples = wav[HEADER_BYTES:]
    is_wav = len(samples) % 2 == 0 and wav[:HEADER_BYTES] == wav_header(len(samples))
    promised(is_wav, "a chunk is no 24 kHz mono PCM16 WAV file")
    return samples
