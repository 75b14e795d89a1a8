"""Plays one job to one client: frame by frame, in one framing, to the one event that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from starlette.types import Message, Send

from gateway.envelope import error_body
from gateway.finish import Finish, Tally, failure_of
from gateway.formats import AUDIO
from gateway.runtime import Served
from gateway.streams import Chunk, Framing
from gateway.take import Take
from gateway.terminals import lasting_facts, terminal_keys
from shared.errors import SpeechError
from shared.messages import End, FrameRecord

PIECE_BYTES: Final = 64 << 10
"""What is written at once of a body that is there: as much as may wait for a client."""


class Line:
    """The way back to one client. A call returns when there is room for more, and one that is
    cancelled before has sent nothing.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def send(self, message: Message) -> None:
        await self._send(message)
        self.has_begun = True

    async def begin(self, content_type: str, headers: Mapping[str, str]) -> None:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        raw.append((b"content-type", content_type.encode()))
        await self.send({"type": "http.response.start", "status": 200, "headers": raw})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if data or not more:
            await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def write_all(self, pieces: AsyncIterator[bytes]) -> None:
        """The rest of the body, piece by piece as the client takes it."""
        waiting = bytearray()
        async for piece in pieces:
            waiting += piece
            if len(waiting) >= PIECE_BYTES:
                await self.write(bytes(waiting))
                waiting.clear()
        await self.write(bytes(waiting), more=False)


async def first_event(take: Take) -> FrameRecord | None:
    """The first frame, or None when the voice turn's budget is used up before it.

    Raises SpeechError when the job ends, or can't be heard any more, before either; and when it
    is known already that it was cancelled.
    """
    recorded = take.recorded
    if recorded is not None and (failure := failure_of(recorded)) is not None:
        raise failure
    if take.call.transport.stream_format == AUDIO:
        event: FrameRecord | End | None = await take.next()
    else:
        event = await take.next_within_budget()
    if isinstance(event, End):
        Tally().finish(event, replayed=take.replayed)
        raise SpeechError("no_audio_generated", "the job ended before the first frame")
    return event


class Player:
    """Plays one take out over one line, in one framing."""

    def __init__(self, take: Take, framing: Framing, line: Line) -> None:
        self.line = line
        self.served = Served()
        self.finish: Finish | None = None
        self._take = take
        self._framing = framing
        self._tally = Tally()
        self._end: End | None = None

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
            self.finish = self._tally.finish(heard, replayed=self._take.replayed)
            await self.line.write(await self._made(self._framing.tail))
        except SpeechError as failure:
            await self._tell(failure)
            return failure
        await self.line.write(self._framing.terminal(self._document(None)), more=False)
        return None

    async def _send(self, frame: FrameRecord) -> None:
        self._tally.take(frame.pcm)
        final = frame.index + 1 == self._take.call.job.max_frames
        chunk = Chunk(frame, final)
        audio = await self._made(lambda: self._framing.audio(chunk))
        with self._take.unless_cut():
            await self.line.write(audio)
            await asyncio.sleep(0)  # a replay's frames are all there: let others have their turn

    async def _made(self, make: Callable[[], bytes]) -> bytes:
        """Audio on its way out; what has to be compressed is so beside the event loop."""
        if not self._take.call.transport.is_encoded:
            return make()
        with self._take.unless_cut():
            return await asyncio.to_thread(make)

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
        take = self._take
        return terminal_keys(
            take.call.job,
            lasting_facts(take.call),
            self._end,
            claimed=take.claimed,
            served=self.served,
            first_audio_ms=take.first_audio_ms,
            chunk_count=self._tally.frames,
            failure=failure,
            replayed=take.replayed,
        )
