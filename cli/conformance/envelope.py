"""The error envelope, held to the table of codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.conformance.promise import Broken, promised, same
from cli.conformance.shapes import fits
from cli.conformance.wire import Reply
from gateway.answers import Error, ErrorEnvelope
from shared.errors import AUTHENTICATION, CODES, NOT_NOW


def refused(reply: Reply, *codes: str, request_id: str | None = None) -> str:
    """Holds a refusal to the contract; it has to be one of these codes, which is returned.

    ``request_id``: the readable id that the request had. Raises Broken.
    """
    if reply.status < 400:
        raise Broken(f"HTTP {reply.status} where {_either(codes)} was due")
    document = reply.object()
    fits(ErrorEnvelope, document, "the envelope")
    error = document["error"]
    code = str(error["code"])
    promised(code in codes, f"the code is {{}}, not {_either(codes)}", code)
    same("the status", CODES[code].status, reply.status)
    as_in_table(error, code)
    _headers(reply.headers, code, request_id)
    if request_id is not None:
        same("the envelope's request_id", request_id, error["request_id"])
    return code


def as_in_table(error: Mapping[str, Any], code: str) -> None:
    """Type and verdicts of an error object, as the table of codes has them. Raises Broken."""
    fits(Error, error, "the error")
    same("the code", code, error["code"])
    same("the type", CODES[code].type, error["type"])
    same("retryable", CODES[code].retryable, error["retryable"])
    same("fallback_recommended", CODES[code].retryable, error["fallback_recommended"])
    same("execution_mode", "native", error["execution_mode"])


def _headers(headers: Mapping[str, str], code: str, request_id: str | None) -> None:
    spec = CODES[code]
    same("x-psionic-csm-failure-code", code, headers.get("x-psionic-csm-failure-code"))
    retry = "true" if spec.retryable else "false"
    same("x-should-retry", retry, headers.get("x-should-retry"))
    if request_id is not None:
        same("x-psionic-request-id", request_id, headers.get("x-psionic-request-id"))
        same("x-request-id", request_id, headers.get("x-request-id"))
    after = headers.get("retry-after")
    if spec.status in NOT_NOW:
        is_whole = after is not None and after.isascii() and after.isdigit() and int(after) >= 1
        promised(is_whole, "Retry-After is missing, or is not 1 or more whole seconds")
    else:
        same("Retry-After", None, after)
    if spec.type == AUTHENTICATION:
        same("www-authenticate", "Bearer", headers.get("www-authenticate"))


def _either(codes: tuple[str, ...]) -> str:
    return " or ".join(codes) if len(codes) <= 3 else f"one of {len(codes)} codes"
