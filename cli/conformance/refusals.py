"""What has to be refused before anything is queued: in the envelope, with its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cli.conformance.envelope import refused
from cli.conformance.promise import promised, same
from cli.conformance.run import Run
from gateway.bodies import MAX_BODY_BYTES
from gateway.text import MAX_INPUT_CHARACTERS
from shared.paths import CANCELLATIONS, OPENAI_SPEECH, SPEECH
from shared.speech_rate import CHARACTERS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Row:
    """A request that is refused with ``code``: a short speech, changed, or something else."""

    code: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    path: str = SPEECH
    param: str | None = None


ROWS: Final = {
    "another model": Row("model_unavailable", {"model": "nobody/nothing"}, param="model"),
    "another artifact": Row(
        "artifact_unavailable", {"artifact_id": f"sha256:{'0' * 64}"}, param="artifact_id"
    ),
    "an unknown voice": Row("voice_profile_unavailable", {"voice_profile_id": "nobody/nothing_v1"}),
    "a blank text": Row("empty_input", {"input": " \n"}, param="input"),
    "a control character": Row("invalid_input_text", {"input": "a\x00b"}, param="input"),
    "half a surrogate pair": Row("invalid_input_text", {"input": "a\ud800b"}, param="input"),
    "a text that is too long": Row(
        "input_too_long", {"input": "a" * (MAX_INPUT_CHARACTERS + 1)}, param="input"
    ),
    "a text beyond its length": Row(
        "input_exceeds_budget",
        {"input": "a" * (CHARACTERS_PER_SECOND + 1), "max_audio_length_ms": 1000},
        param="max_audio_length_ms",
    ),
    "a length beyond the tier's": Row(
        "invalid_max_audio_length_ms",
        {"max_audio_length_ms": 3_600_000},
        param="max_audio_length_ms",
    ),
    "a length of less than a frame": Row(
        "invalid_max_audio_length_ms", {"max_audio_length_ms": 79}, param="max_audio_length_ms"
    ),
    "two different lengths": Row(
        "conflicting_parameter", {"psionic_csm": {"max_audio_length_ms": 880}}
    ),
    "no time at all": Row("invalid_timeout_ms", {"timeout_ms": 0}, param="timeout_ms"),
    "a seed that is no number": Row("invalid_type", {"seed": "seven"}, param="seed"),
    "a seed out of range": Row("invalid_seed", {"seed": 2**53}, param="seed"),
    "a temperature out of range": Row("invalid_temperature", {"psionic_csm": {"temperature": 2.5}}),
    "a top-k of 0": Row("invalid_top_k", {"psionic_csm": {"top_k": 0}}),
    "an unknown context policy": Row(
        "invalid_context_policy", {"context_policy": "everything"}, param="context_policy"
    ),
    "an unknown normalization": Row(
        "unsupported_parameter",
        {"text_normalization": "spoken_klingon"},
        param="text_normalization",
    ),
    "an unknown stream format": Row(
        "invalid_stream_format", {"stream": True, "stream_format": "smoke"}, param="stream_format"
    ),
    "an unknown field": Row("unknown_parameter", {"smoke": 1}, param="smoke"),
    "OpenAI's speed": Row("unsupported_parameter", {"speed": 1.5}, OPENAI_SPEECH, "speed"),
    "a blank request id": Row("empty_request_id", {"request_id": " "}, param="request_id"),
    "a request id with a line end": Row(
        "invalid_request_id", {"request_id": "a\r\nx-smoke: 1"}, param="request_id"
    ),
    "a cancellation id with a blank": Row(
        "invalid_cancellation_id", {"cancellation_id": "a b"}, param="cancellation_id"
    ),
}


def check_of(name: str, row: Row) -> Callable[[Run], None]:
    """The check of one row. The refusal names the request, unless that is what is wrong."""

    def refusal(run: Run) -> None:
        body = run.speech("refused", **row.changes)
        is_readable = "request_id" not in row.changes
        reply = run.wire.post(row.path, body)
        refused(reply, row.code, request_id=run.id("refused") if is_readable else None)
        promised("x-smoke" not in reply.headers, "an id has become a header of its own")
        if row.param is not None:
            same("param", row.param, reply.json()["error"]["param"])

    refusal.__doc__ = name
    return refusal


def raw_prompt(run: Run) -> None:
    """The prompt behind a voice is no voice: only governed profiles speak."""
    for voice in run.metadata["voice_profiles"]:
        source = voice["source_prompt_profile_id"]
        if source not in [each["id"] for each in run.metadata["voice_profiles"]]:
            body = run.speech("raw", voice_profile_id=source)
            refused(run.wire.post(SPEECH, body), "voice_profile_unavailable")


def malformed_json(run: Run) -> None:
    for body in (b"{", b"", b'{"input": "\xff"}', b'{"seed": NaN}', b"[" * 20_000):
        refused(run.wire.post(SPEECH, body), "malformed_json")


def no_object(run: Run) -> None:
    for body in (b"[]", b'"text"', b'{"input": "a", "input": "b"}'):
        refused(run.wire.post(SPEECH, body), "invalid_type")


def body_too_large(run: Run) -> None:
    body = b'{"input": "' + b"a" * MAX_BODY_BYTES + b'"}'
    refused(run.wire.post(SPEECH, body), "body_too_large")


def media_type(run: Run) -> None:
    reply = run.wire.post(SPEECH, b"{}", headers={"content-type": "text/plain"})
    refused(reply, "unsupported_media_type")


def method(run: Run) -> None:
    """Another method is told which are taken."""
    for method, path, taken in (
        ("GET", SPEECH, "POST"),
        ("PUT", CANCELLATIONS, "POST"),
        ("POST", "/health", "GET"),
        ("DELETE", "/v1/models", "GET"),
    ):
        reply = run.wire.ask(method, path)
        refused(reply, "method_not_allowed")
        promised(taken in reply.headers.get("allow", ""), f"Allow of {path} lacks {taken}")


def route(run: Run) -> None:
    for path in ("/psionic/csm/nothing", "/v1", "/health/", f"{SPEECH}/"):
        refused(run.wire.get(path), "route_not_found")


def cancellation(run: Run) -> None:
    """A cancel names exactly one id, which can be one."""
    both = {"request_id": run.id("a"), "cancellation_id": run.id("b")}
    for body, code in (
        ({}, "invalid_type"),
        (both, "conflicting_parameter"),
        ({"request_id": ""}, "empty_request_id"),
        ({"cancellation_id": "a b"}, "invalid_cancellation_id"),
        ({"cancellation_id": run.id("a"), "smoke": 1}, "unknown_parameter"),
    ):
        refused(run.wire.post(CANCELLATIONS, body), code)
