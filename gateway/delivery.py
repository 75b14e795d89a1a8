"""Answers one call: in one piece, or event by event as its frames come.

A status is committed with the first audio, or with the ``fallback`` event that a voice turn's
budget asks for. What goes wrong before is a plain HTTP error; after that, an error event, or for a
raw body a transfer that is broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.types import Send

from gateway.access import note_failure
from gateway.call import SpeechCall
from gateway.envelope import error_response
from gateway.facts import Facts
from gateway.finish import Finish, Tally
from gateway.headers import (
    BUDGET_EXCEEDED,
    REPLAYED,
    execution_headers,
    result_headers,
    stream_headers,
)
from gateway.player import PIECE_BYTES, Line, Player, first_event
from gateway.samples import Budget, Samples
from gateway.speech import Speech
from gateway.streams import framing_for
from gateway.take import Take
from shared.errors import SpeechError
from shared.messages import FrameRecord
from shared.settings import GatewaySettings
from shared.tracing import Span

Entry = dict[str, Any]
Pieces = AsyncIterator[bytes]

ENCODERS: Final = 4
"""Whole answers that are being compressed at once."""


class Delivery:
    """Answers calls of one gateway."""

    def __init__(
        self, settings: GatewaySettings, speech: Speech, facts: Facts, budget: Budget
    ) -> None:
        self._settings = settings
        self._speech = speech
        self._facts = facts
        self._budget = budget
        self._encoders = asyncio.Semaphore(ENCODERS)

    async def answer(
        self,
        call: SpeechCall,
        principal: str,
        arrived_ms: float,
        send: Send,
        entry: Entry,
        span: Span,
    ) -> None:
        """Raises ClientDisconnect when the client stalls."""
        line = Line(send)
        try:
            async with self._speech.take(call, principal, arrived_ms) as take:
                try:
                    with take.unless_cut():
                        if call.transport.stream_format is None:
                            await self._one_shot(take, line, entry)
                        else:
                            await self._stream(take, call.transport.stream_format, line, entry)
                finally:
                    _note_take(entry, take)
                    _trace(span, take, arrived_ms)
        except SpeechError as error:
            if line.has_begun:
                entry["code"] = error.code  # told by an answer without an end
            else:
                await self._refuse(call, error, {}, line, entry)

    async def _one_shot(self, take: Take, line: Line, entry: Entry) -> None:
        with Samples(self._budget) as samples:
            try:
                finish = await _heard_out(take, samples)
                size, pieces = await self._whole(take, samples)
            except SpeechError as error:
                samples.release()
                await self._refuse(take.call, error, _marks(take), line, entry)
                return
            _note(entry, finish)
            try:
                await self._begin_whole(take, finish, size, line)
                await line.write_all(pieces)
            except SpeechError as error:
                note_failure(entry, error)  # told by a body that is shorter than announced

    async def _whole(self, take: Take, samples: Samples) -> tuple[int | None, Pieces]:
        """The body and its size, which isn't known of one that is compressed as it is taken."""
        transport = take.call.transport
        if not transport.is_encoded:
            head = transport.head(samples.size)
            return len(head) + samples.size, _after(head, samples.all(take))
        encoded = await self._encoded(take, samples)
        if encoded is not None and samples.hold_instead(encoded):
            return len(encoded), _in_pieces(encoded)
        return None, _encoded_as_taken(take, samples)

    async def _encoded(self, take: Take, samples: Samples) -> bytes | None:
        """A compressed body, made beside the event loop, a few at a time. None when the caller's
        time is over before it is this one's turn: then it is to be made as it is taken.
        """
        with take.unless_cut():
            try:
                async with asyncio.timeout(take.left_s):
                    await self._encoders.acquire()
            except TimeoutError:
                return None
            try:
                pcm = b"".join([piece async for piece in samples.all(take)])
                return await asyncio.to_thread(take.call.transport.encoded, pcm)
            finally:
                self._encoders.release()

    async def _begin_whole(self, take: Take, finish: Finish, size: int | None, line: Line) -> None:
        kept_ms = self._settings.queue.result_ttl_ms if take.kept_ms is None else take.kept_ms
        headers = {
            **execution_headers(take.call, finish.served, finish.terminal.runtime_image_ref),
            **result_headers(finish, seed=take.call.job.seed, kept_ms=kept_ms),
            **_marks(take),
        }
        if size is not None:
            headers["content-length"] = str(size)
        await line.begin(take.call.transport.audio_type, headers)

    async def _stream(self, take: Take, stream_format: str, line: Line, entry: Entry) -> None:
        try:
            event = await first_event(take)
            framing = framing_for(take.call.transport)  # and its encoder: not while it waits
        except SpeechError as error:
            await self._refuse(take.call, error, _marks(take), line, entry)
            return
        player = Player(take, framing, line)
        worker_id = take.claimed.worker_id if take.claimed else None
        player.served = await self._facts.served(take.call.artifact, worker_id)
        headers = {
            **execution_headers(take.call, player.served, self._settings.runtime_image_ref),
            **stream_headers(stream_format),
            **_marks(take),
        }
        await line.begin(framing.content_type, headers)
        failure = await player.play(event)
        if failure is not None:
            note_failure(entry, failure)
        elif player.finish is not None:
            _note(entry, player.finish)

    async def _refuse(
        self,
        call: SpeechCall,
        error: SpeechError,
        marks: Mapping[str, str],
        line: Line,
        entry: Entry,
    ) -> None:
        note_failure(entry, error)
        served = await self._facts.served(call.artifact)
        response = error_response(
            error,
            served=served,
            request_id=call.job.request_id,
            rollback_target=call.artifact.manifest.rollback_target,
            headers={**execution_headers(call, served, self._settings.runtime_image_ref), **marks},
        )
        await response({"type": "http"}, _no_receive, line.send)


async def _heard_out(take: Take, samples: Samples) -> Finish:
    """The finish of a job whose every frame was heard. Raises SpeechError for any other end."""
    tally = Tally()
    while isinstance(event := await take.next(), FrameRecord):
        tally.take(event.pcm)
        samples.add(event.pcm)
    return tally.finish(event, replayed=take.replayed)


async def _after(head: bytes, pieces: Pieces) -> Pieces:
    yield head
    async for piece in pieces:
        yield piece


async def _encoded_as_taken(take: Take, samples: Samples) -> Pieces:
    """A compressed body that there is no room to hold: as if it were streamed."""
    body = take.call.transport.streamed()
    async for pcm in samples.all(take):
        with take.unless_cut():
            piece = await asyncio.to_thread(body.feed, pcm)
        yield piece
    yield body.finish()


async def _in_pieces(body: bytes) -> Pieces:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def _marks(take: Take) -> dict[str, str]:
    marks = {}
    if take.replayed:
        marks[REPLAYED] = "true"
    if take.over_budget:
        marks[BUDGET_EXCEEDED] = "true"
    return marks


def _note(entry: Entry, finish: Finish) -> None:
    entry.update(
        finish_reason=finish.end.finish_reason,
        generation_ms=finish.end.full_generation_latency_ms,
    )


def _note_take(entry: Entry, take: Take) -> None:
    """What is known of a take, however it ended."""
    claimed = take.claimed
    entry.update(
        job=take.job_id,
        frames=take.frames,
        first_audio_latency_ms=take.first_audio_ms,
        queue_wait_ms=claimed.queue_wait_ms if claimed else None,
        attempt=claimed.attempt if claimed else None,
        worker_id=claimed.worker_id if claimed else None,
        stream_format=take.call.transport.stream_format,
        replayed=take.replayed,
    )


def _trace(span: Span, take: Take, arrived_ms: float) -> None:
    """The parts of a request's time, as they were seen from here."""
    times = take.times
    span.child("admission", arrived_ms, times.admitted_ms)
    if take.replayed:
        return
    span.child("queue", times.admitted_ms, times.claimed_ms, claimed=take.claimed is not None)
    if times.first_ms is not None:
        span.child("delivery", times.first_ms, None, frames=take.frames)


async def _no_receive() -> Any:
    raise RuntimeError("a response reads nothing")
