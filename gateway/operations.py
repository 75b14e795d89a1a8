"""What a gateway can be asked: each path's method, what it takes, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from gateway import answers, service_answers
from gateway.console import CONTENT_TYPE as PAGE_TYPE
from gateway.formats import CONTENT_TYPES, WAV
from gateway.header_table import CALL, IDS, RESULT, STREAM
from gateway.schema import CancellationRequest, OutcomeRequest, SpeechRequest
from gateway.streams import JsonlBase64, MultipartMixed, ServerSentEvents
from shared import paths
from shared.errors import CODES, PROBE_NO
from shared.metrics import CONTENT_TYPE as METRICS_TYPE

REF: Final = "#/components/schemas/{model}"
EVENTS: Final = "x-psionic-events"
JSON: Final = "application/json"
OPENAI_REQUEST: Final = "OpenAISpeechRequest"

Headers = Mapping[str, tuple[str, str]]
Spec = dict[str, Any]

ANYWHERE: Final = ("internal_error", "malformed_json")
OUTCOME: Final = ("result_not_found", "invalid_outcome", "outcome_conflict")
ELSEWHERE: Final = ("route_not_found", "method_not_allowed", *OUTCOME)
QUEUE: Final = ("queue_unavailable", "queue_memory_low")
SPEECH: Final = tuple(code for code in CODES if code not in ELSEWHERE)
BODY: Final = (
    *ANYWHERE,
    *QUEUE,
    "unauthorized",
    "body_too_large",
    "unsupported_media_type",
    "invalid_type",
    "unknown_parameter",
)
CANCELLATION: Final = (
    *BODY,
    "conflicting_parameter",
    "empty_request_id",
    "invalid_request_id",
    "empty_cancellation_id",
    "invalid_cancellation_id",
)
LOOKING: Final = (*ANYWHERE, "unauthorized")
FINDING: Final = (*LOOKING, *QUEUE, "result_not_found")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``codes``: the refusals and failures that it may end in.

    ``answers``: description, content and headers by status. ``body`` is the name of its model.
    """

    method: str
    path: str
    id: str
    summary: str
    codes: tuple[str, ...]
    answers: Mapping[int, tuple[str, Spec, Headers]]
    body: str | None = None
    public: bool = False


def operations(formats: tuple[str, ...]) -> tuple[Operation, ...]:
    """Those of a gateway that can make these formats."""
    return (*_speaking(formats), *_about_requests(), *_about_the_service())


def _speaking(formats: tuple[str, ...]) -> tuple[Operation, ...]:
    spoken = {200: ("the audio, whole or streamed", _spoken(formats), {**CALL, **STREAM, **RESULT})}
    return (
        Operation(
            "post",
            paths.SPEECH,
            "speak",
            "Speak a text",
            SPEECH,
            spoken,
            SpeechRequest.__name__,
        ),
        Operation(
            "post",
            paths.OPENAI_SPEECH,
            "createSpeech",
            "Speak a text, as OpenAI's clients ask for it",
            SPEECH,
            spoken,
            OPENAI_REQUEST,
        ),
    )


def _about_requests() -> tuple[Operation, ...]:
    return (
        Operation(
            "post",
            paths.CANCELLATIONS,
            "cancel",
            "Cancel a request or a voice turn",
            CANCELLATION,
            {202: ("what was hit", content_of(answers.CancellationReport), IDS)},
            CancellationRequest.__name__,
        ),
        Operation(
            "get",
            paths.RESULT,
            "readResult",
            "What became of a request",
            FINDING,
            {200: ("its state, and once ended its terminal", content_of(answers.Result), IDS)},
        ),
        Operation(
            "get",
            paths.RESULT_AUDIO,
            "readAudio",
            "Its WAV file, while it is kept",
            FINDING,
            {200: ("the file", {CONTENT_TYPES[WAV]: {}}, {**IDS, **RESULT})},
        ),
        Operation(
            "get",
            paths.EVIDENCE,
            "readEvidence",
            "The record by which to judge a request",
            FINDING,
            {200: ("whole once it has ended", content_of(answers.Evidence), IDS)},
        ),
        Operation(
            "post",
            paths.OUTCOME,
            "recordOutcome",
            "Say once what the business made of a request",
            (*BODY, *OUTCOME),
            {
                201: ("recorded", content_of(answers.RecordedOutcome), IDS),
                200: ("recorded before", content_of(answers.RecordedOutcome), IDS),
            },
            OutcomeRequest.__name__,
        ),
    )


def _about_the_service() -> tuple[Operation, ...]:
    return (
        _look(paths.METADATA, "metadata", "Service and workers", service_answers.Metadata),
        _look(paths.LOAD, "load", "How loaded it is", service_answers.Load, *QUEUE),
        _look(paths.MODELS, "listModels", "The model that is served", service_answers.Models),
        _look(paths.DESCRIPTION, "describe", "This document", None),
        _look(
            paths.HEALTH,
            "health",
            "The service in every state",
            service_answers.Health,
            public=True,
        ),
        _probe(paths.LIVE, "live", "Whether the process does its work"),
        _probe(paths.READY, "ready", "Whether it would serve"),
        Operation(
            "get",
            paths.METRICS,
            "scrape",
            "Metrics for Prometheus",
            ANYWHERE,
            {200: ("text form", {METRICS_TYPE: {"schema": {"type": "string"}}}, IDS)},
            public=True,
        ),
        Operation(
            "get",
            paths.CONSOLE,
            "console",
            "A page for people: how it stands, and a form that speaks",
            ANYWHERE,
            {200: ("the page", {PAGE_TYPE: {"schema": {"type": "string"}}}, IDS)},
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
    content = {JSON: {"schema": {"type": "object"}}} if answer is None else content_of(answer)
    named = (*(ANYWHERE if public else LOOKING), *codes)
    return Operation("get", path, id_, summary, named, {200: ("", content, IDS)}, public=public)


def _probe(path: str, id_: str, summary: str) -> Operation:
    content = content_of(service_answers.Probe)
    told: Mapping[int, tuple[str, Spec, Headers]] = {
        200: ("yes", content, IDS),
        PROBE_NO: ("no", content, IDS),
    }
    return Operation("get", path, id_, summary, ANYWHERE, told, public=True)


def reference(model: str) -> Spec:
    return {"$ref": REF.format(model=model)}


def content_of(model: type[BaseModel]) -> Spec:
    return {JSON: {"schema": reference(model.__name__)}}


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
        told = [reference(event.__name__) for event in events]
        content[media_type] = {"schema": {"type": "string"}, EVENTS: told}
    return content
