"""What became of a request, by its id: for retries and for callers that lost their connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.access import entry_of, note_failure
from gateway.envelope import id_headers
from gateway.finish import Tally, failure_of
from gateway.formats import CONTENT_TYPES, WAV
from gateway.headers import result_headers
from gateway.terminals import terminal_keys
from scheduler.results import JobRecord, Results
from shared.errors import SpeechError
from shared.messages import LENGTH, STOP
from shared.wav import FRAME_BYTES, HEADER_BYTES, wav_header


class Audio(StreamingResponse):
    """A body that is shorter than announced where it can't be read on: its status has left."""

    failure: SpeechError | None = None

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except SpeechError as failure:
            self.failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        if self.failure is not None:
            note_failure(entry_of(scope), self.failure)


class ResultReader:
    """Reads results of a principal's own requests. Reading is not listening."""

    def __init__(self, results: Results) -> None:
        self._results = results

    async def document(self, principal: str, request_id: str) -> dict[str, Any]:
        """State, and once ended the terminal's keys. Raises ``result_not_found``."""
        return told(await found(self._results, principal, request_id))

    async def audio(self, principal: str, request_id: str) -> Response:
        """The WAV file while it is kept. Raises ``result_not_found``."""
        record = await found(self._results, principal, request_id)
        if record.end is None or record.end.finish_reason not in (STOP, LENGTH):
            raise SpeechError("result_not_found", "this request has no finished audio")
        tally = Tally()
        async for frame in self._results.frames(record.job_id):
            tally.take(frame.pcm)
        if tally.frames == 0:
            raise SpeechError("result_not_found", "the audio is no longer kept")
        finish = tally.finish(record.end, replayed=True)
        kept_ms = await self._results.kept_ms(record.job_id)
        size = tally.frames * FRAME_BYTES
        headers = {
            **id_headers(record.request_id),
            **result_headers(finish, seed=record.facts.get("seed"), kept_ms=kept_ms),
            "content-length": str(HEADER_BYTES + size),
        }
        return Audio(
            self._file(record.job_id, size), headers=headers, media_type=CONTENT_TYPES[WAV]
        )

    async def _file(self, job_id: str, size: int) -> AsyncIterator[bytes]:
        """The WAV file, read a second time as its client takes it."""
        yield wav_header(size)
        async for frame in self._results.frames(job_id):
            size -= len(frame.pcm)
            yield frame.pcm
        if size:
            raise SpeechError("result_not_found", "the audio is no longer kept")


async def found(results: Results, principal: str, request_id: str) -> JobRecord:
    """The record that this principal's id stands for. Raises ``result_not_found``."""
    record = await results.find(principal, request_id)
    if record is None:
        raise SpeechError("result_not_found", "no such request is known, or no longer")
    return record


def told(record: JobRecord) -> dict[str, Any]:
    """How a request stands, and once ended the terminal's keys."""
    return {
        "request_id": record.request_id,
        "cancellation_id": record.cancellation_id,
        "state": record.state,
        "attempt": record.attempt,
        "generated_frame_count": record.frame_count,
        "terminal": _terminal(record),
    }


def _terminal(record: JobRecord) -> dict[str, Any] | None:
    if record.end is None:
        return None
    failure = failure_of(record.end)
    return terminal_keys(
        record, record.facts, record.end, chunk_count=record.frame_count, failure=failure
    )
