"""The error envelope: one JSON shape for every refusal and failure, with its headers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from gateway.runtime import UNSERVED, Served
from shared.errors import AUTHENTICATION, NOT_NOW, SpeechError

EXECUTION_MODE: Final = "native"
REQUEST_ID_HEADER: Final = "x-psionic-request-id"
OPENAI_REQUEST_ID_HEADER: Final = "x-request-id"
"""Where OpenAI's clients look for an answer's id."""
FAILURE_CODE_HEADER: Final = "x-psionic-csm-failure-code"
MIN_RETRY_AFTER_S: Final = 1

_NOT_PRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


def error_body(
    error: SpeechError,
    *,
    served: Served = UNSERVED,
    request_id: str | None = None,
    rollback_target: str | None = None,
) -> dict[str, Any]:
    """The value of ``error``. A caller should fall back whenever the service, not the request, is
    at fault.
    """
    return {
        "message": error.message,
        "type": error.type,
        "code": error.code,
        "served_backend": served.backend,
        "execution_mode": EXECUTION_MODE,
        "execution_engine": served.execution_engine,
        "request_id": request_id,
        "retryable": error.retryable,
        "fallback_recommended": error.retryable,
        "rollback_target": rollback_target,
        "param": error.param,
    }


def error_headers(error: SpeechError, request_id: str | None) -> dict[str, str]:
    headers = {
        FAILURE_CODE_HEADER: error.code,
        "x-should-retry": flag(error.retryable),
    }
    if request_id is not None:
        headers |= id_headers(request_id)
    if error.status in NOT_NOW:
        wait_s = math.ceil(error.retry_after_s or 0)
        headers["retry-after"] = str(max(MIN_RETRY_AFTER_S, wait_s))
    if error.type == AUTHENTICATION:
        headers["www-authenticate"] = "Bearer"
    return headers


def error_response(
    error: SpeechError,
    *,
    served: Served = UNSERVED,
    request_id: str | None = None,
    rollback_target: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A refusal as an HTTP answer; ``headers`` are added to its own."""
    body = error_body(error, served=served, request_id=request_id, rollback_target=rollback_target)
    return JSONResponse(
        {"error": body},
        status_code=error.status,
        headers={**(headers or {}), **error_headers(error, request_id)},
    )


def id_headers(request_id: str) -> dict[str, str]:
    """The id that an answer belongs to, under both of its names."""
    return {REQUEST_ID_HEADER: request_id, OPENAI_REQUEST_ID_HEADER: request_id}


def flag(value: bool) -> str:
    return "true" if value else "false"


def printable(text: str) -> str:
    """Free text as a legal header value."""
    return _NOT_PRINTABLE.sub("?", text)[:255]
