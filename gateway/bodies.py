"""Request bodies: bounded in size and time, JSON, one object, no key twice.

A body that does not arrive within ``BODY_TIMEOUT_S`` is answered like one that is cut short, with
``malformed_json``: the contract's table has no 408, and the remedy is the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, NoReturn

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shared.errors import SpeechError

MAX_BODY_BYTES: Final = 64 * 1024
BODY_TIMEOUT_S: Final = 10.0
MAX_DIGITS: Final = 40
"""Longer integers are out of every field's range, so their exact value does not matter."""
HUGE: Final[int] = int("9" * MAX_DIGITS)

PLAIN: Final = {"content-encoding": "identity", "transfer-encoding": "chunked"}
"""Header fields that may wrap a body, and the one value that leaves its bytes as they are."""

_JSON_MEDIA_TYPE: Final = re.compile(r"application/(json|[a-z0-9!#$&^_.+-]+\+json)")


async def read_json(
    headers: Headers, receive: Receive, *, timeout_s: float = BODY_TIMEOUT_S
) -> dict[str, Any]:
    """The one JSON object of a request.

    Raises SpeechError: ``unsupported_media_type``, ``body_too_large``, ``malformed_json``,
    ``invalid_type``; ClientDisconnect when the client is gone.
    """
    check_media_type(headers)
    try:
        async with asyncio.timeout(timeout_s):
            data = await _read(headers, receive)
    except TimeoutError as error:
        raise SpeechError("malformed_json", "the body did not arrive in time") from error
    return parse_object(data)


def check_media_type(headers: Headers) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not _JSON_MEDIA_TYPE.fullmatch(media_type):
        raise SpeechError(
            "unsupported_media_type", "the body must be application/json or application/*+json"
        )
    if any(headers.get(name, plain).strip().lower() != plain for name, plain in PLAIN.items()):
        raise SpeechError("unsupported_media_type", "the body must not be compressed")


async def _read(headers: Headers, receive: Receive) -> bytes:
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> SpeechError:
    return SpeechError("body_too_large", f"the body is over {MAX_BODY_BYTES} bytes")


class _GivenTwice(ValueError):
    """An object that names a key twice."""


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object from UTF-8. NaN and infinities are not JSON.

    Raises SpeechError: ``malformed_json``, or ``invalid_type`` for well-formed JSON that is not an
    object or names a key twice.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_once_each,
            parse_constant=_refuse_constant,
            parse_int=_bounded_int,
        )
    except _GivenTwice as error:
        raise SpeechError("invalid_type", "the body names a key twice") from error
    except (ValueError, RecursionError) as error:
        raise SpeechError("malformed_json", "the body is not JSON") from error
    if not isinstance(value, dict):
        raise SpeechError("invalid_type", "the body must be a JSON object")
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _GivenTwice
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _bounded_int(digits: str) -> int:
    if len(digits) <= MAX_DIGITS:
        return int(digits)
    return -HUGE if digits.startswith("-") else HUGE
