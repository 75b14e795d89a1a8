"""What is answered at once: the documents, cancellations, results, evidence and outcomes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.access import entry_of
from gateway.auth import PRINCIPAL
from gateway.bodies import read_json
from gateway.business import OutcomeRecorder
from gateway.documents import Documents
from gateway.envelope import id_headers
from gateway.evidence import EvidenceReader
from gateway.ids import check_id, is_id
from gateway.results import ResultReader
from gateway.schema import CancellationRequest, OutcomeRequest, parse, refuse_unknown
from scheduler.cancellation import Cancellation, Kind
from shared.errors import SpeechError


class Endpoints:
    """One method for each."""

    def __init__(
        self,
        documents: Documents,
        cancellation: Cancellation,
        results: ResultReader,
        evidence: EvidenceReader,
        outcomes: OutcomeRecorder,
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


def _cancelled_id(values: dict[str, Any]) -> tuple[Kind, str]:
    """What is to be cancelled: its kind and its id. Raises SpeechError."""
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
