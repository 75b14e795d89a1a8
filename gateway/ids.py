"""Request and cancellation ids: what may be one, and which one a request has."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import uuid4

from starlette.datastructures import Headers

from gateway.envelope import REQUEST_ID_HEADER
from shared.errors import SpeechError

IDEMPOTENCY_HEADER: Final = "idempotency-key"

_FORM: Final = "[A-Za-z0-9._:-]{1,128}"

ID: Final = {"type": "string", "pattern": f"^{_FORM}$"}
"""What an id may be, as JSON Schema says it."""

_ID: Final = re.compile(_FORM)


def is_id(value: object) -> bool:
    """Whether a value can be a request or cancellation id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def new_request_id() -> str:
    return f"psionic_csm_req_{uuid4().hex}"


def check_id(value: str, param: str) -> None:
    """Raises SpeechError: ``empty_<param>`` or ``invalid_<param>``."""
    if not value.strip():
        raise SpeechError(f"empty_{param}", f"{param} is blank", param=param)
    if not is_id(value):
        raise SpeechError(
            f"invalid_{param}", f"{param} takes 1 to 128 of A-Z a-z 0-9 . _ : -", param=param
        )


def id_in(headers: Headers) -> str | None:
    """The request id that the headers give, legal or not."""
    given = headers.get(REQUEST_ID_HEADER)
    return headers.get(IDEMPOTENCY_HEADER) if given is None else given


def readable_id(headers: Headers) -> str | None:
    """The request id that the headers give, if it can be one."""
    given = id_in(headers)
    return given if is_id(given) else None


class RequestIds:
    """The id of one request: the body's, else a header's, else one of ours."""

    def __init__(self, headers: Headers) -> None:
        given = id_in(headers)
        self.fallback = new_request_id() if given is None else given
        self.readable = self.fallback if is_id(self.fallback) else None

    def read(self, values: dict[str, Any]) -> None:
        """Take the body's id, for answers to a request that is refused."""
        named = values.get("request_id")
        if named is not None:
            self.readable = named if is_id(named) else None
