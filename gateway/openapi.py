"""The OpenAPI 3.1 document of one gateway: its routes, what they take and what they may answer.

Bodies are described by the models that validate them, answers by those of ``gateway.answers``,
refusals by the table of ``shared.errors``. What this gateway does not serve is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway import answers
from gateway.envelope import REQUEST_ID_HEADER
from gateway.formats import CONTENT_TYPES, WAV
from gateway.header_table import CALL, CHALLENGE, FAILURE, IDS, RESULT, RETRY_AFTER, STREAM
from gateway.ids import ID, IDEMPOTENCY_HEADER
from gateway.openapi_ranges import fields, ranges
from gateway.schema import CancellationRequest, SpeechRequest
from gateway.streams import JsonlBase64, MultipartMixed, ServerSentEvents
from shared.errors import AUTHENTICATION, CODES, NOT_NOW, PROBE_NO
from shared.metrics import CONTENT_TYPE as METRICS_TYPE
from shared.settings import GatewaySettings
from shared.tracing import HEADER as TRACE_HEADER

VERSION: Final = "3.1.1"
REF: Final = "#/components/schemas/{model}"
BEARER: Final = "bearer"
EVENTS: Final = "x-psionic-events"
JSON: Final = "application/json"
OPENAI_REQUEST: Final = "OpenAISpeechRequest"

Headers = Mapping[str, tuple[str, str]]
Spec = dict[str, Any]

ANYWHERE: Final = ("internal_error", "malformed_json")
ELSEWHERE: Final = ("route_not_found", "result_not_found", "method_not_allowed")
QUEUE: Final = ("queue_unavailable", "queue_memory_low")
SPEECH: Final = tuple(code for code in CODES if code not in ELSEWHERE)
CANCELLATION: Final = (
    *ANYWHERE,
    *QUEUE,
    "unauthorized",
    "body_too_large",
    "unsupported_media_type",
    "invalid_type",
    "unknown_parameter",
    "conflicting_parameter",
    "empty_request_id",
    "invalid_request_id",
    "empty_cancellation_id",
    "invalid_cancellation_id",
)
LOOKING: Final = (*ANYWHERE, "unauthorized")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``answers``: description, content and headers by status."""

    method: str
    path: str
    id: str
    summary: str
    codes: tuple[str, ...]
    answers: Mapping[int, tuple[str, Spec, Headers]]
    body: str | None = None
    public: bool = False


def document(settings: GatewaySettings, formats: Iterable[str]) -> Spec:
    """The document of a gateway with these settings that can make these formats."""
    served = tuple(formats)
    operations = _operations(served)
    paths: dict[str, Spec] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Psionic CSM Speech",
            "version": "v1",
            "description": (
                "Every path may also answer 405 (method_not_allowed) to another method, and what "
                "is no path of this document 404 (route_not_found), both in the error envelope."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{BEARER: []}] if settings.api_keys else [],
        "paths": paths,
        "components": {
            "schemas": _schemas(settings, served),
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }


def _operations(formats: tuple[str, ...]) -> tuple[Operation, ...]:
    spoken = {200: ("the audio, whole or streamed", _spoken(formats), {**CALL, **STREAM, **RESULT})}
    return (
        Operation(
            "post",
            "/psionic/csm/speech",
            "speak",
            "Speak a text",
            SPEECH,
            spoken,
            SpeechRequest.__name__,
        ),
        Operation(
            "post",
            "/v1/audio/speech",
            "createSpeech",
            "Speak a text, as OpenAI's clients ask for it",
            SPEECH,
            spoken,
            OPENAI_REQUEST,
        ),
        Operation(
            "post",
            "/psionic/csm/cancellations",
            "cancel",
            "Cancel a request or a voice turn",
            CANCELLATION,
            {202: ("what was hit", _json(answers.CancellationReport), {})},
            CancellationRequest.__name__,
        ),
        Operation(
            "get",
            "/psionic/csm/speech/{request_id}",
            "readResult",
            "What became of a request",
            (*LOOKING, *QUEUE, "result_not_found"),
            {200: ("its state, and once ended its terminal", _json(answers.Result), IDS)},
        ),
        Operation(
            "get",
            "/psionic/csm/speech/{request_id}/audio",
            "readAudio",
            "Its WAV file, while it is kept",
            (*LOOKING, *QUEUE, "result_not_found"),
            {200: ("the file", {CONTENT_TYPES[WAV]: {}}, {**IDS, **RESULT})},
        ),
        _look("/psionic/csm/worker/metadata", "metadata", "Service and workers", answers.Metadata),
        _look("/psionic/csm/load", "load", "How loaded it is", answers.Load, *QUEUE),
        _look("/v1/models", "listModels", "The model that is served", answers.Models),
        _look("/openapi.json", "describe", "This document", None),
        _look("/health", "health", "The service in every state", answers.Health, public=True),
        _probe("/health/live", "live", "Whether the process does its work"),
        _probe("/health/ready", "ready", "Whether it would serve"),
        Operation(
            "get",
            "/metrics",
            "scrape",
            "Metrics for Prometheus",
            ANYWHERE,
            {200: ("text form", {METRICS_TYPE: {"schema": {"type": "string"}}}, {})},
            public=True,
        ),
    )


def _look(
    path: str,
    id_: str,
    summary: str,
    answer: type[BaseModel] | None,
    *codes: str,
    public: bool = False,
) -> Operation:
    content = {JSON: {"schema": {"type": "object"}}} if answer is None else _json(answer)
    named = (*(ANYWHERE if public else LOOKING), *codes)
    return Operation("get", path, id_, summary, named, {200: ("", content, {})}, public=public)


def _probe(path: str, id_: str, summary: str) -> Operation:
    content = _json(answers.Probe)
    told: Mapping[int, tuple[str, Spec, Headers]] = {
        200: ("yes", content, {}),
        PROBE_NO: ("no", content, {}),
    }
    return Operation("get", path, id_, summary, ANYWHERE, told, public=True)


def _json(model: type[BaseModel]) -> Spec:
    return {JSON: {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _spoken(formats: tuple[str, ...]) -> Spec:
    """Content of the one answer with audio. Bytes have no schema. What a stream's events are is
    told beside its content type, since OpenAPI 3.1 has no place for it.
    """
    streams = {
        MultipartMixed.content_type.partition(";")[0]: answers.PARTS,
        JsonlBase64.content_type: answers.LINES,
        ServerSentEvents.content_type.partition(";")[0]: answers.SERVER_SENT,
    }
    content: Spec = {CONTENT_TYPES[name]: {} for name in formats}
    for media_type, events in streams.items():
        told = [{"$ref": REF.format(model=event.__name__)} for event in events]
        content[media_type] = {"schema": {"type": "string"}, EVENTS: told}
    return content


def _operation(operation: Operation) -> Spec:
    spec: Spec = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        content = {JSON: {"schema": {"$ref": REF.format(model=operation.body)}}}
        spec["requestBody"] = {"required": True, "content": content}
    if operation.public:
        spec["security"] = []
    return spec


def _parameters(operation: Operation) -> list[Spec]:
    if "{request_id}" in operation.path:
        return [_parameter("request_id", "path", ID, required=True)]
    if operation.body is None:
        return []
    trace = _parameter(TRACE_HEADER, "header", {"type": "string"})
    if operation.body == CancellationRequest.__name__:
        return [trace]
    # No pattern: only the first id that is there is read, the body's before these.
    named = (REQUEST_ID_HEADER, IDEMPOTENCY_HEADER)
    ids = (_parameter(name, "header", {"type": "string"}) for name in named)
    return [*ids, trace]


def _parameter(name: str, place: str, schema: Spec, *, required: bool = False) -> Spec:
    return {"name": name, "in": place, "required": required, "schema": schema}


def _responses(operation: Operation) -> Spec:
    responses = {
        str(status): _response(text or operation.summary, content, headers)
        for status, (text, content, headers) in operation.answers.items()
    }
    refused: dict[int, list[str]] = {}
    for code in operation.codes:
        refused.setdefault(CODES[code].status, []).append(code)
    for status, codes in sorted(refused.items()):
        responses.setdefault(str(status), _refusal(status, codes))
    return responses


def _refusal(status: int, codes: list[str]) -> Spec:
    """An error answer: the envelope, with the codes that this status may have here."""
    type_ = CODES[codes[0]].type
    narrowed = {"code": {"enum": sorted(codes)}, "type": {"const": type_}}
    schema = {
        "allOf": [
            {"$ref": REF.format(model=answers.ErrorEnvelope.__name__)},
            {"properties": {"error": {"properties": narrowed}}},
        ]
    }
    headers = {
        **CALL,
        **FAILURE,
        **(RETRY_AFTER if status in NOT_NOW else {}),
        **(CHALLENGE if type_ == AUTHENTICATION else {}),
    }
    spec = _response(", ".join(sorted(codes)), {JSON: {"schema": schema}}, headers)
    for name in ("x-psionic-csm-failure-code", "x-should-retry", *RETRY_AFTER, *CHALLENGE):
        if name in spec["headers"]:
            spec["headers"][name]["required"] = True
    return spec


def _response(text: str, content: Spec, headers: Headers) -> Spec:
    return {
        "description": text,
        "headers": {
            name: {"description": meaning, "schema": {"type": kind}}
            for name, (kind, meaning) in headers.items()
        },
        "content": content,
    }


def _schemas(settings: GatewaySettings, formats: tuple[str, ...]) -> Spec:
    models: list[type[BaseModel]] = [
        SpeechRequest,
        CancellationRequest,
        answers.ErrorEnvelope,
        answers.Health,
        answers.Metadata,
        answers.Models,
        answers.Load,
        answers.CancellationReport,
        answers.Result,
        answers.Probe,
        *answers.PARTS,
        *answers.LINES,
        *answers.SERVER_SENT,
    ]
    _, whole = models_json_schema(
        [(each, "validation") for each in dict.fromkeys(models)], ref_template=REF
    )
    schemas: Spec = whole["$defs"]
    known = ranges(settings, formats)
    fields(schemas["SpeechRequest"], known)
    fields(schemas["Options"], known)
    fields(schemas["CancellationRequest"], known)
    schemas[OPENAI_REQUEST] = {**schemas["SpeechRequest"], "title": OPENAI_REQUEST}
    for strict in ("SpeechRequest", "Options", "VoiceReference", "CancellationRequest"):
        schemas[strict] = {**schemas[strict], "additionalProperties": False}
    schemas["CancellationRequest"]["oneOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in CancellationRequest.model_fields
    ]
    return schemas
