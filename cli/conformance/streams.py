"""Each stream format: its framing, one terminal, and the samples of the answer in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli.conformance import framings
from cli.conformance.framings import Event, failed_with
from cli.conformance.promise import Broken, BrokenOff, Declined, promised, same
from cli.conformance.run import Run
from cli.conformance.shapes import has_headers
from cli.conformance.speech import NOT_ALWAYS, ended
from cli.conformance.wire import Reply
from gateway.formats import AUDIO, CONTENT_TYPES, JSONL, MULTIPART, SSE, WAV
from gateway.header_table import CALL, STREAM
from gateway.streams import JsonlBase64, MultipartMixed, ServerSentEvents
from shared.digests import sha256_hex
from shared.paths import SPEECH
from shared.wav import FRAME_BYTES, wav_file

STREAM_TYPES: Final = {
    MULTIPART: MultipartMixed.content_type,
    JSONL: JsonlBase64.content_type,
    AUDIO: CONTENT_TYPES[WAV],
    SSE: ServerSentEvents.content_type,
}


def request(run: Run, stream_format: str, name: str, **changes: Any) -> dict[str, Any]:
    """A short request for a stream: the two of OpenAI's imply that they are one."""
    own = {"stream": True} if stream_format in (MULTIPART, JSONL) else {}
    return run.speech(name, stream_format=stream_format, **own, **changes)


def multipart_mixed(run: Run) -> str:
    events = framings.multipart(_streamed(run, MULTIPART).body)
    return _held(run, events, framings.chunked(events))


def jsonl_base64(run: Run) -> str:
    events = framings.jsonl(_streamed(run, JSONL).body)
    terminal = framings.closed(events, starts=True)
    same("chunk_transport", JSONL, terminal.get("chunk_transport"))
    return _held(run, events, framings.chunked(events))


def sse(run: Run) -> str:
    events = framings.sse(_streamed(run, SSE).body)
    body = b"".join(event.pcm for event in events)
    return _held(run, events, framings.streamed_wav(body), starts=False)


def audio(run: Run) -> str:
    """The raw body tells nothing of itself: its terminal is at its result, and its failure too."""
    try:
        body = _streamed(run, AUDIO).body
    except BrokenOff as broken_off:
        raise _why(run, AUDIO) or broken_off from broken_off
    pcm = framings.streamed_wav(body)
    terminal = run.result(AUDIO).get("terminal")
    promised(isinstance(terminal, dict), "a stream that ended has no terminal at its result")
    return _agrees(run, terminal or {}, pcm)


def _why(run: Run, name: str) -> Declined | Broken | None:
    """The failure for which a body without events was broken off, if its result tells one."""
    reply = run.wire.get(f"{SPEECH}/{run.id(name)}")
    terminal = reply.object().get("terminal") if reply.status == 200 else None
    code = terminal.get("failure_code") if isinstance(terminal, dict) else None
    return failed_with(code) if isinstance(code, str) else None


def fallback(run: Run) -> None:
    """A budget that nothing can meet is one event, before the first audio."""
    reply = run.wire.speak(request(run, JSONL, "fallback", voice_turn_budget_ms=1))
    kinds = [event.kind for event in framings.jsonl(reply.body)]
    same("the events before the first audio", ["start", "fallback", "audio"], kinds[:3])
    same("the number of fallback events", 1, kinds.count("fallback"))


def _streamed(run: Run, stream_format: str) -> Reply:
    reply = run.wire.speak(request(run, stream_format, stream_format), SPEECH)
    headers = reply.headers
    same("the content type", STREAM_TYPES[stream_format], headers.get("content-type"))
    has_headers(headers, {**CALL, **STREAM}, but_for=NOT_ALWAYS)
    same("x-psionic-stream-format", stream_format, headers["x-psionic-stream-format"])
    same("x-psionic-stream-window-frames", "1", headers["x-psionic-stream-window-frames"])
    same("cache-control", "no-store", headers["cache-control"])
    promised("content-length" not in headers, "a stream states its length")
    return reply


def _held(run: Run, events: list[Event], pcm: bytes, *, starts: bool = True) -> str:
    return _agrees(run, framings.closed(events, starts=starts), pcm)


def _agrees(run: Run, terminal: Mapping[str, Any], pcm: bytes) -> str:
    """The terminal is of these samples, and they are those of the answer in one piece."""
    frames = len(pcm) // FRAME_BYTES
    same("the stream's samples", frames * FRAME_BYTES, len(pcm))
    same("generated_frame_count", frames, terminal["generated_frame_count"])
    same("wav_pcm16_digest", sha256_hex(wav_file(pcm)), terminal["wav_pcm16_digest"])
    same("pcm16_sha256", sha256_hex(pcm), terminal["pcm16_sha256"])
    ended(terminal["finish_reason"], frames)
    if terminal["determinism_class"] != run.determinism_class:
        return "spoken by a worker of another determinism class: compared with itself alone"
    promised(pcm == run.pcm, "the samples are not those of the answer in one piece")
    return f"{frames} frames"
