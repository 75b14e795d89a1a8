"""Which path answers what."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import paths
from gateway.access import ROUTE, SPAN, entry_of
from gateway.auth import PRINCIPAL
from gateway.bodies import read_json
from gateway.business import BusinessOutcomes
from gateway.call import SpeechCall
from gateway.delivery import Delivery
from gateway.documents import Documents
from gateway.door import Door
from gateway.envelope import error_response, id_headers
from gateway.evidence import EvidenceReader
from gateway.facts import Facts
from gateway.ids import RequestIds, check_id, is_id
from gateway.metrics import CLIENT_GONE
from gateway.presence import Presence
from gateway.results import ResultReader
from gateway.schema import (
    CancellationRequest,
    OutcomeRequest,
    SpeechRequest,
    parse,
    refuse_unknown,
    refuse_unsupported,
)
from gateway.validation import Validator
from scheduler.cancellation import Cancellation
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
        at_once: AtOnce,
        door: Door,
    ) -> None:
        self._validator = validator
        self._delivery = delivery
        self._facts = facts
        self._default = default
        self._lenient = lenient
        self._at_once = at_once
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._at_once:
                await self._answer(scope, receive, send)
        except ClientDisconnect:
            entry_of(scope)["code"] = CLIENT_GONE

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = entry_of(scope)
        headers = Headers(scope=scope)
        ids = RequestIds(headers)
        try:
            self._at_once.check()
            values = await read_json(headers, receive)
            arrived_ms = monotonic_ms()
            ids.read(values)
            async with self._door.turn(_patience_s(values)):
                call = self._check(values, ids.fallback)
                await asyncio.sleep(0)  # let others have their turn with this process
        except SpeechError as error:
            entry.update(code=error.code, request_id=ids.readable)
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


class AtOnce:
    """A bound on the speech requests that are open in this process."""

    def __init__(self, most: int, told: Callable[[int], None] = lambda _: None) -> None:
        """``told`` hears how many are open whenever that changes."""
        self.most = most
        self.open = 0
        self._told = told

    def __enter__(self) -> None:
        self.open += 1
        self._told(self.open)

    def __exit__(self, *_: object) -> None:
        self.open -= 1
        self._told(self.open)

    def check(self) -> None:
        """Raises SpeechError("too_many_waiting")."""
        if self.open > self.most:
            raise SpeechError(
                "too_many_waiting", "this gateway has too many open requests", retry_after_s=1.0
            )


class Endpoints:
    """The routes that are answered at once."""

    def __init__(
        self,
        documents: Documents,
        cancellation: Cancellation,
        results: ResultReader,
        evidence: EvidenceReader,
        outcomes: BusinessOutcomes,
    ) -> None:
        self._documents = documents
        self._cancellation = cancellation
        self._results = results
        self._evidence = evidence
        self._outcomes = outcomes

    async def health(self, _: Request) -> Response:
        return JSONResponse(await self._documents.health())

    async def models(self, _: Request) -> Response:
        return JSONResponse(await self._documents.models())

    async def metadata(self, _: Request) -> Response:
        return JSONResponse(await self._documents.metadata())

    async def load(self, _: Request) -> Response:
        return JSONResponse(await self._documents.load())

    async def cancel(self, request: Request) -> Response:
        values = await read_json(request.headers, request.receive)
        kind, id_ = _cancelled_id(values)
        report = await self._cancellation.cancel(request.scope[PRINCIPAL], kind, id_)
        entry_of(request.scope).update({f"{kind}_cancelled": id_, "hits": len(report.hits)})
        hits = [{"request_id": hit.request_id, "was": hit.was} for hit in report.hits]
        return JSONResponse({"hits": hits, "remembered": report.remembered}, status_code=202)

    async def result(self, request: Request) -> Response:
        id_ = _path_id(request)
        document = await self._results.document(request.scope[PRINCIPAL], id_)
        return JSONResponse(document, headers=id_headers(id_))

    async def audio(self, request: Request) -> Response:
        return await self._results.audio(request.scope[PRINCIPAL], _path_id(request))

    async def evidence(self, request: Request) -> Response:
        id_ = _path_id(request)
        document = await self._evidence.document(request.scope[PRINCIPAL], id_)
        return JSONResponse(document, headers={**id_headers(id_), "cache-control": "no-store"})

    async def outcome(self, request: Request) -> Response:
        id_ = _path_id(request)
        said = parse(OutcomeRequest, await read_json(request.headers, request.receive))
        refuse_unknown(said.unknown())
        outcome, is_new = await self._outcomes.record(request.scope[PRINCIPAL], id_, said)
        names = ("outcome", "mode", "reason", "played_ms", "reference")
        entry_of(request.scope).update({name: outcome[name] for name in names}, repeated=not is_new)
        document = {"request_id": id_, "business_outcome": outcome}
        return JSONResponse(document, 201 if is_new else 200, id_headers(id_))


def _path_id(request: Request) -> str:
    id_: str = request.path_params["request_id"]
    if not is_id(id_):
        raise SpeechError("result_not_found", "no request can have this id")
    entry_of(request.scope)["request_id"] = id_
    return id_


def _cancelled_id(values: dict[str, Any]) -> tuple[Any, str]:
    """The kind (``turn`` or ``request``) and the id of what is to be cancelled."""
    body = parse(CancellationRequest, values)
    refuse_unknown(body.unknown())
    turn, request_id = body.cancellation_id, body.request_id
    if turn is not None and request_id is not None:
        raise SpeechError(
            "conflicting_parameter",
            "give cancellation_id or request_id, not both",
            param="request_id",
        )
    if turn is not None:
        check_id(turn, "cancellation_id")
        return "turn", turn
    if request_id is None:
        raise SpeechError(
            "invalid_type", "cancellation_id or request_id is needed", param="cancellation_id"
        )
    check_id(request_id, "request_id")
    return "request", request_id


Get = Callable[[Request], Awaitable[Response]]


def speech_routes(
    native: SpeechEndpoint,
    openai: SpeechEndpoint,
    endpoints: Endpoints,
    *,
    live: Get,
    ready: Get,
    metrics: Get,
    described: Get,
    console: Get,
) -> Sequence[BaseRoute]:
    return (
        _route(paths.SPEECH, native, "POST"),
        _route(paths.OPENAI_SPEECH, openai, "POST"),
        _route(paths.CANCELLATIONS, endpoints.cancel, "POST"),
        _route(paths.RESULT, endpoints.result),
        _route(paths.RESULT_AUDIO, endpoints.audio),
        _route(paths.EVIDENCE, endpoints.evidence),
        _route(paths.OUTCOME, endpoints.outcome, "POST"),
        _route(paths.METADATA, endpoints.metadata),
        _route(paths.LOAD, endpoints.load),
        _route(paths.MODELS, endpoints.models),
        _route(paths.HEALTH, endpoints.health),
        _route(paths.LIVE, live),
        _route(paths.READY, ready),
        _route(paths.METRICS, metrics),
        _route(paths.DESCRIPTION, described),
        _route(paths.CONSOLE, console),
    )


class NamedRoute(Route):
    """A route that leaves its own pattern in the scope, for logs that must not repeat a path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, child if match == Match.NONE else {**child, ROUTE: self.path}


def _route(path: str, endpoint: ASGIApp | Get, method: str = "GET") -> Route:
    return NamedRoute(path, endpoint, methods=[method])
