"""What happens to a job, as entries of its stream: claims, frames, the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from shared.messages import Claimed, End, Event, FrameRecord, MalformedMessage, Terminal

FRAME: Final = b"f"
"""The one field of an entry that is a frame: of all entries nearly all are."""

log = structlog.get_logger()


def parse(fields: Mapping[bytes, bytes], elapsed_ms: int = 0) -> Event | None:
    """One stream entry as an event; None for a kind that this version doesn't know.

    ``elapsed_ms``: how long after its job's admission it was written, which an entry's id tells.
    Raises MalformedMessage for an entry that is not what its kind says.
    """
    try:
        return _parse(fields, elapsed_ms)
    except (KeyError, ValueError) as error:
        raise MalformedMessage(f"event: {type(error).__name__}") from error


def written_ms(position: bytes) -> int:
    """When an entry was written, on Redis's clock. Raises ValueError for what is no entry's id."""
    return int(position.partition(b"-")[0])


def _parse(fields: Mapping[bytes, bytes], elapsed_ms: int) -> Event | None:
    if (packed := fields.get(FRAME)) is not None:
        return FrameRecord.unpack(packed, elapsed_ms)
    kind = fields.get(b"k")
    if kind == b"claimed":
        return Claimed(
            int(fields[b"attempt"]),
            fields[b"worker"].decode(),
            int(fields[b"queue_wait_ms"]),
            int(fields[b"admitted_ms"]),
        )
    if kind == b"frame":
        raise ValueError("a frame as an older version wrote it")
    if kind == b"end":
        return parse_end(fields, reason=b"reason", code=b"code")
    return None


def parse_end(fields: Mapping[bytes, bytes], *, reason: bytes, code: bytes) -> End:
    """An end as ``scheduler/lua/common/ends.lua`` writes it, into the stream and into the job's
    record; ``reason`` and ``code`` are what those call the two fields that they name differently.

    Raises KeyError or ValueError for what is no end.
    """
    first_audio_ms = fields.get(b"first_audio_ms")
    return End(
        finish_reason=fields[reason].decode(),
        failure_code=fields[code].decode() or None,
        message=fields[b"message"].decode(),
        attempt=int(fields[b"attempt"]),
        abandoned=fields[b"abandoned"] == b"1",
        queue_wait_ms=int(fields[b"queue_wait_ms"]),
        first_audio_latency_ms=int(first_audio_ms) if first_audio_ms else None,
        full_generation_latency_ms=int(fields[b"total_ms"]),
        terminal=_parse_terminal(fields[b"terminal"]),
    )


def _parse_terminal(value: bytes) -> Terminal | None:
    """The worker's statement, or None when there is none or it can't be read."""
    if not value:
        return None
    try:
        return Terminal.from_bytes(value)
    except MalformedMessage as error:
        log.error("terminal_unreadable", why=str(error))
        return None
