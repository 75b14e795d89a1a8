"""Request bodies: what counts as JSON, as too large, as too slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from gateway.bodies import MAX_BODY_BYTES, parse_object, read_json
from shared.errors import SpeechError

JSON = {"content-type": "application/json"}


def pieces(*messages: dict[str, Any]) -> Any:
    queue = list(messages)

    async def receive() -> dict[str, Any]:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return receive


def piece(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":1}x',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b"\xff\xfe",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\x01"}',
        b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    ],
)
def test_what_is_not_json_is_malformed(data: bytes) -> None:
    """Anything but one JSON text in UTF-8 is malformed, however deep or odd it is."""
    with pytest.raises(SpeechError) as refusal:
        parse_object(data)

    assert refusal.value.code == "malformed_json"


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b"null", b'{"a":1,"a":1}', b'{"b":{"a":1,"a":2}}', b'{"a":1,"\\u0061":2}']
)
def test_json_of_another_shape_is_a_wrong_type(data: bytes) -> None:
    """Well-formed JSON that is no object, or names a key twice at any depth, is a wrong type."""
    with pytest.raises(SpeechError) as refusal:
        parse_object(data)

    assert refusal.value.code == "invalid_type"


def test_an_integer_of_many_digits_stays_an_integer() -> None:
    """A number of sixty thousand digits costs nothing and stays out of every range."""
    digits = b"9" * 60_000

    assert parse_object(b'{"a":%b}' % digits)["a"] > 2**64
    assert parse_object(b'{"a":-%b}' % digits)["a"] < -(2**64)


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"],
)
async def test_json_media_types_are_read(content_type: str) -> None:
    """application/json and application/*+json are read, in any case and with parameters."""
    values = await read_json(Headers({"content-type": content_type}), pieces(piece(b'{"a":1}')))

    assert values == {"a": 1}


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/jsonx", "json"])
async def test_other_media_types_are_refused(content_type: str | None) -> None:
    """Any other media type, or none, is refused before the body is read."""
    headers = Headers({} if content_type is None else {"content-type": content_type})

    with pytest.raises(SpeechError) as refusal:
        await read_json(headers, pieces())

    assert refusal.value.code == "unsupported_media_type"


@pytest.mark.parametrize(
    "wrapped",
    [
        {"content-encoding": "gzip"},
        {"content-encoding": "identity, br"},
        {"content-encoding": ""},
        {"transfer-encoding": "gzip, chunked"},
    ],
)
async def test_a_compressed_body_is_refused(wrapped: dict[str, str]) -> None:
    """Nothing is unpacked, so nothing can be packed too tight; it is refused unread."""
    with pytest.raises(SpeechError) as refusal:
        await read_json(Headers({"content-type": "application/json", **wrapped}), pieces())

    assert refusal.value.code == "unsupported_media_type"


@pytest.mark.parametrize(
    "wrapped", [{"content-encoding": "Identity"}, {"transfer-encoding": "chunked"}]
)
async def test_a_body_as_it_is_is_read(wrapped: dict[str, str]) -> None:
    """What only says that the bytes are as they are changes nothing."""
    headers = Headers({"content-type": "application/json", **wrapped})

    assert await read_json(headers, pieces(piece(b'{"a":1}'))) == {"a": 1}


async def test_an_announced_size_is_refused_unread() -> None:
    """A content length over the limit is refused before any of the body is read."""
    headers = Headers({**JSON, "content-length": str(MAX_BODY_BYTES + 1)})

    with pytest.raises(SpeechError) as refusal:
        await read_json(headers, pieces())

    assert refusal.value.code == "body_too_large"


async def test_an_unannounced_size_is_refused_while_reading() -> None:
    """A body that grows over the limit is refused there, and no more of it is read."""
    chunks = pieces(piece(b" " * MAX_BODY_BYTES, more=True), piece(b" ", more=True))

    with pytest.raises(SpeechError) as refusal:
        await read_json(Headers(JSON), chunks)

    assert refusal.value.code == "body_too_large"


async def test_a_body_of_the_full_size_is_read() -> None:
    """The limit itself is allowed."""
    body = b'{"a":"%b"}' % (b"x" * (MAX_BODY_BYTES - 8))

    values = await read_json(Headers(JSON), pieces(piece(body[:9], more=True), piece(body[9:])))

    assert len(values["a"]) == MAX_BODY_BYTES - 8


async def test_a_slow_body_is_given_up() -> None:
    """A body that does not arrive in time is refused like one that is cut short."""
    with pytest.raises(SpeechError) as refusal:
        await read_json(Headers(JSON), pieces(piece(b"{", more=True)), timeout_s=0.02)

    assert refusal.value.code == "malformed_json"


async def test_a_client_that_leaves_while_sending_is_gone() -> None:
    """A disconnect in the body is no request at all."""
    with pytest.raises(ClientDisconnect):
        await read_json(Headers(JSON), pieces(piece(b"{", more=True), {"type": "http.disconnect"}))
