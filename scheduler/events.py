"""What happens to a job, as entries of its stream: claims, frames, the end."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from shared.messages import (
    CODES_BYTES,
    Claimed,
    End,
    Event,
    FrameRecord,
    MalformedMessage,
    Terminal,
)
from shared.wav import FRAME_BYTES

log = structlog.get_logger()


def parse(fields: Mapping[bytes, bytes]) -> Event | None:
    """One stream entry as an event; None for a kind that this version doesn't know.

    Raises MalformedMessage for an entry that is not what its kind says.
    """
    try:
        return _parse(fields)
    except (KeyError, ValueError) as error:
        raise MalformedMessage(f"event: {type(error).__name__}") from error


def _parse(fields: Mapping[bytes, bytes]) -> Event | None:
    kind = fields.get(b"k")
    if kind == b"frame":
        codes, pcm = fields[b"c"], fields[b"p"]
        if len(codes) != CODES_BYTES or len(pcm) != FRAME_BYTES:
            raise ValueError("not a whole frame")
        return FrameRecord(int(fields[b"i"]), codes, pcm, int(fields[b"t"]))
    if kind == b"claimed":
        return Claimed(
            int(fields[b"attempt"]), fields[b"worker"].decode(), int(fields[b"queue_wait_ms"])
        )
    if kind == b"end":
        return End(
            finish_reason=fields[b"reason"].decode(),
            failure_code=fields[b"code"].decode() or None,
            message=fields[b"message"].decode(),
            attempt=int(fields[b"attempt"]),
            abandoned=fields[b"abandoned"] == b"1",
            queue_wait_ms=int(fields[b"queue_wait_ms"]),
            first_audio_latency_ms=optional_int(fields[b"first_audio_ms"]),
            full_generation_latency_ms=int(fields[b"total_ms"]),
            terminal=parse_terminal(fields[b"terminal"]),
        )
    return None


def optional_int(value: bytes | None) -> int | None:
    return int(value) if value else None


def parse_terminal(value: bytes | None) -> Terminal | None:
    """The worker's statement, or None when there is none or it can't be read."""
    if not value:
        return None
    try:
        return Terminal.from_bytes(value)
    except MalformedMessage as error:
        log.error("terminal_unreadable", why=str(error))
        return None
