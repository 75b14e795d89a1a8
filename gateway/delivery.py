"""Answers one call: in one piece, or event by event as its frames come.

A status is committed with the first audio, or with the ``fallback`` event that a voice turn's
budget asks for. What goes wrong before is a plain HTTP error; after that, an error event, or for a
raw body a transfer that is broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Send

from gateway.envelope import error_body, error_response
from gateway.facts import Facts
from gateway.formats import AUDIO
from gateway.headers import (
    BUDGET_EXCEEDED,
    REPLAYED,
    execution_headers,
    result_headers,
    stream_headers,
)
from gateway.outcome import Intake, Outcome
from gateway.runtime import Served
from gateway.speech import Speech, Take
from gateway.streams import Chunk, Framing, framing_for
from gateway.terminals import terminal_keys
from gateway.validation import SpeechCall
from shared.errors import SpeechError
from shared.messages import End, FrameRecord
from shared.settings import GatewaySettings

SEND_STALL_S: Final = 30.0
"""How long a client may take no byte before it counts as gone."""

Entry = dict[str, Any]


class Line:
    """The way back to one client, with a limit on how long it may stall."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self, content_type: str, headers: Mapping[str, str]) -> None:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        raw.append((b"content-type", content_type.encode()))
        await self.send({"type": "http.response.start", "status": 200, "headers": raw})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if data or not more:
            await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def send(self, message: Message) -> None:
        """Raises ClientDisconnect when the client takes nothing any more."""
        try:
            async with asyncio.timeout(SEND_STALL_S):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnect from None


class Delivery:
    """Answers calls of one gateway."""

    def __init__(self, settings: GatewaySettings, speech: Speech, facts: Facts) -> None:
        self._settings = settings
        self._speech = speech
        self._facts = facts

    async def answer(
        self, call: SpeechCall, principal: str, arrived_ms: float, send: Send, entry: Entry
    ) -> None:
        """Raises ClientDisconnect when the client stalls."""
        line = Line(send)
        try:
            async with self._speech.take(call, principal, arrived_ms) as take:
                entry["job"] = take.job_id
                if call.transport.stream_format is None:
                    await self._one_shot(take, line, entry)
                else:
                    await self._stream(take, call.transport.stream_format, line, entry)
        except SpeechError as error:
            await self._refuse(call, error, {}, line, entry)

    async def _one_shot(self, take: Take, line: Line, entry: Entry) -> None:
        try:
            response = await self._whole(take, entry)
        except SpeechError as error:
            await self._refuse(take.call, error, _marks(take), line, entry)
        else:
            await response({"type": "http"}, _no_receive, line.send)

    async def _whole(self, take: Take, entry: Entry) -> Response:
        intake, pieces = Intake(), []
        while isinstance(event := await take.next(), FrameRecord):
            intake.take(event.pcm)
            pieces.append(event.pcm)
        outcome = intake.judge(event, replayed=take.replayed)
        _note(entry, take, outcome)
        headers = {
            **self._execution(take.call, outcome.served, outcome.terminal.runtime_image_ref),
            **result_headers(
                outcome,
                seed=take.call.job.seed,
                result_ttl_ms=self._settings.queue.result_ttl_ms,
            ),
            **_marks(take),
        }
        transport = take.call.transport
        return Response(
            transport.whole(b"".join(pieces)), headers=headers, media_type=transport.audio_type
        )

    async def _stream(self, take: Take, stream_format: str, line: Line, entry: Entry) -> None:
        framing = framing_for(take.call.transport)
        player = Player(take, framing, line)
        try:
            event = await player.first()
        except SpeechError as error:
            await self._refuse(take.call, error, _marks(take), line, entry)
            return
        worker_id = take.claimed.worker_id if take.claimed else None
        player.served = await self._facts.served(take.call.artifact, worker_id)
        headers = {
            **self._execution(take.call, player.served, self._settings.runtime_image_ref),
            **stream_headers(stream_format),
            **_marks(take),
        }
        await line.begin(framing.content_type, headers)
        failure = await player.play(event)
        if failure is not None:
            entry["code"] = failure.code
        elif player.outcome is not None:
            _note(entry, take, player.outcome)

    def _execution(
        self, call: SpeechCall, served: Served, runtime_image_ref: str
    ) -> dict[str, str]:
        return execution_headers(call, served, runtime_image_ref)

    async def _refuse(
        self,
        call: SpeechCall,
        error: SpeechError,
        marks: Mapping[str, str],
        line: Line,
        entry: Entry,
    ) -> None:
        entry["code"] = error.code
        served = await self._facts.served(call.artifact)
        response = error_response(
            error,
            served=served,
            request_id=call.job.request_id,
            rollback_target=call.artifact.manifest.rollback_target,
            headers={**self._execution(call, served, self._settings.runtime_image_ref), **marks},
        )
        await response({"type": "http"}, _no_receive, line.send)


class Player:
    """Plays one take out over one line, in one framing."""

    def __init__(self, take: Take, framing: Framing, line: Line) -> None:
        self.line = line
        self.served = Served()
        self.outcome: Outcome | None = None
        self._take = take
        self._framing = framing
        self._intake = Intake()
        self._end: End | None = None

    async def first(self) -> FrameRecord | None:
        """The first frame, or None when the voice turn's budget is used up before it.

        Raises SpeechError when the job ends, or can't be heard any more, before either.
        """
        if self._take.call.transport.stream_format == AUDIO:
            event: FrameRecord | End | None = await self._take.next()
        else:
            event = await self._take.next_within_budget()
        if isinstance(event, End):
            self._intake.judge(event, replayed=self._take.replayed)
            raise SpeechError("no_audio_generated", "the job ended before the first frame")
        return event

    async def play(self, event: FrameRecord | None) -> SpeechError | None:
        """Send every event; returns the failure that was told, if there was one."""
        await self.line.write(self._framing.start())
        try:
            if event is None:
                await self.line.write(self._framing.fallback(self._fallback()))
            else:
                await self._send(event)
            while isinstance(heard := await self._take.next(), FrameRecord):
                await self._send(heard)
            self._end = heard
            self.outcome = self._intake.judge(heard, replayed=self._take.replayed)
        except SpeechError as failure:
            await self._tell(failure)
            return failure
        await self.line.write(self._framing.terminal(self._document(None)), more=False)
        return None

    async def _send(self, frame: FrameRecord) -> None:
        self._intake.take(frame.pcm)
        final = frame.index + 1 == self._take.call.job.max_frames
        await self.line.write(self._framing.audio(Chunk(frame, final)))

    async def _tell(self, failure: SpeechError) -> None:
        error = error_body(
            failure,
            served=self.served,
            request_id=self._take.call.job.request_id,
            rollback_target=self._take.call.artifact.manifest.rollback_target,
        )
        last = self._framing.error({"error": error, **self._document(failure)})
        if last is not None:
            await self.line.write(last, more=False)

    def _fallback(self) -> dict[str, Any]:
        return {
            "reason": "voice_turn_budget_exceeded",
            "elapsed_ms": self._take.elapsed_ms,
            "rollback_target": self._take.call.artifact.manifest.rollback_target,
        }

    def _document(self, failure: SpeechError | None) -> dict[str, Any]:
        return terminal_keys(
            self._take.call,
            self._end,
            served=self.served,
            chunk_count=self._intake.frames,
            failure=failure,
            replayed=self._take.replayed,
        )


def _marks(take: Take) -> dict[str, str]:
    marks = {}
    if take.replayed:
        marks[REPLAYED] = "true"
    if take.over_budget:
        marks[BUDGET_EXCEEDED] = "true"
    return marks


def _note(entry: Entry, take: Take, outcome: Outcome) -> None:
    entry.update(
        finish_reason=outcome.end.finish_reason,
        frames=outcome.terminal.generated_frame_count,
        first_audio_latency_ms=outcome.end.first_audio_latency_ms,
        queue_wait_ms=outcome.end.queue_wait_ms,
        attempt=outcome.end.attempt,
        replayed=take.replayed,
    )


async def _no_receive() -> Any:
    raise RuntimeError("a response reads nothing")
