"""The OpenAPI 3.1 document of one gateway, made of its operations.

Bodies are described by the models that validate them, answers by those of ``gateway.answers``,
refusals by the table of ``shared.errors``. What this gateway does not serve is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway import answers, service_answers
from gateway.envelope import REQUEST_ID_HEADER
from gateway.header_table import CALL, CHALLENGE, FAILURE, RETRY_AFTER
from gateway.ids import ID, IDEMPOTENCY_HEADER
from gateway.openapi_ranges import fields, outcome_ranges, ranges
from gateway.operations import (
    JSON,
    OPENAI_REQUEST,
    REF,
    Headers,
    Operation,
    Spec,
    operations,
    reference,
)
from gateway.schema import CancellationRequest, OutcomeRequest, SpeechRequest
from shared.errors import AUTHENTICATION, CODES, NOT_NOW
from shared.settings import GatewaySettings
from shared.tracing import HEADER as TRACE_HEADER

VERSION: Final = "3.1.1"
BEARER: Final = "bearer"


def document(settings: GatewaySettings, formats: Iterable[str]) -> Spec:
    """The document of a gateway with these settings that can make these formats."""
    served = tuple(formats)
    paths: dict[str, Spec] = {}
    for operation in operations(served):
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


def _operation(operation: Operation) -> Spec:
    spec: Spec = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        content = {JSON: {"schema": reference(operation.body)}}
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
            reference(answers.ErrorEnvelope.__name__),
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
        OutcomeRequest,
        answers.ErrorEnvelope,
        service_answers.Health,
        service_answers.Metadata,
        service_answers.Models,
        service_answers.Load,
        answers.CancellationReport,
        answers.Result,
        answers.Evidence,
        answers.RecordedOutcome,
        service_answers.Probe,
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
    fields(schemas["OutcomeRequest"], outcome_ranges())
    schemas[OPENAI_REQUEST] = {**schemas["SpeechRequest"], "title": OPENAI_REQUEST}
    for strict in (
        "SpeechRequest",
        "Options",
        "VoiceReference",
        "CancellationRequest",
        "OutcomeRequest",
    ):
        schemas[strict] = {**schemas[strict], "additionalProperties": False}
    schemas["CancellationRequest"]["oneOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in CancellationRequest.model_fields
    ]
    return schemas
