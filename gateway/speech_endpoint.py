"""Where texts are posted: reads and checks a request, and hands it over to be answered."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.access import SPAN, entry_of, note_failure
from gateway.auth import PRINCIPAL
from gateway.bodies import read_json
from gateway.call import SpeechCall
from gateway.delivery import Delivery
from gateway.door import Door
from gateway.envelope import error_response
from gateway.facts import Facts
from gateway.ids import RequestIds
from gateway.metrics import CLIENT_GONE
from gateway.open_requests import OpenRequests
from gateway.presence import Presence
from gateway.schema import (
    SpeechRequest,
    parse,
    refuse_unknown,
    refuse_unsupported,
)
from gateway.validation import Validator
from shared.clock import monotonic_ms
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact

MOST_PATIENCE_MS: Final = 60_000
"""More than any tier allows, and far more than anybody waits at the door."""


class SpeechEndpoint:
    """``POST`` of a text. ``lenient``: unknown keys are ignored, as OpenAI's clients expect."""

    def __init__(
        self,
        validator: Validator,
        delivery: Delivery,
        facts: Facts,
        default: Artifact,
        *,
        lenient: bool,
        open_requests: OpenRequests,
        door: Door,
    ) -> None:
        self._validator = validator
        self._delivery = delivery
        self._facts = facts
        self._default = default
        self._lenient = lenient
        self._open = open_requests
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._open:
                await self._answer(scope, receive, send)
        except ClientDisconnect:
            entry_of(scope)["code"] = CLIENT_GONE

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = entry_of(scope)
        headers = Headers(scope=scope)
        ids = RequestIds(headers)
        try:
            self._open.check()
            values = await read_json(headers, receive)
            arrived_ms = monotonic_ms()
            ids.read(values)
            async with self._door.turn(_patience_s(values)):
                call = self._check(values, ids.fallback)
                await asyncio.sleep(0)  # let others have their turn with this process
        except SpeechError as error:
            entry["request_id"] = ids.readable
            note_failure(entry, error)
            response = await self._refusal(error, ids.readable)
            await response(scope, receive, send)
            return
        entry.update(request_id=call.job.request_id, cancellation_id=call.job.cancellation_id)
        principal, span = scope[PRINCIPAL], scope[SPAN]
        entry["principal"] = principal
        call = call.within(span.context)

        async def answer(send: Send) -> None:
            await self._delivery.answer(call, principal, arrived_ms, send, entry, span)

        await Presence(receive, send).run(answer)

    def _check(self, values: dict[str, Any], fallback_id: str) -> SpeechCall:
        request = parse(SpeechRequest, values)
        if self._lenient:
            refuse_unsupported(request)
        else:
            refuse_unknown(request.all_unknown())
        return self._validator.check(request, fallback_id)

    async def _refusal(self, error: SpeechError, request_id: str | None) -> Response:
        return error_response(
            error,
            served=await self._facts.served(self._default),
            request_id=request_id,
            rollback_target=self._default.manifest.rollback_target,
        )


def _patience_s(values: dict[str, Any]) -> float:
    """How long the caller waits, as far as a body says so that nobody has checked yet."""
    given = values.get("timeout_ms")
    return given / 1000 if type(given) is int and 0 < given < MOST_PATIENCE_MS else math.inf
