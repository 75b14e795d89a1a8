"""An honest gateway behind a door where a test may bend what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Said:
    """A whole answer on its way out."""

    method: str
    path: str
    status: int
    headers: dict[str, str]
    body: bytes
    asked: dict[str, Any] = field(default_factory=dict)
    had_key: bool = False

    def document(self) -> Any:
        return json.loads(self.body)

    def saying(self, document: Any) -> Said:
        return replace(self, body=json.dumps(document).encode())

    def with_headers(self, **changes: str | None) -> Said:
        """``x_some_header="value"``; None takes it away."""
        named = {name.replace("_", "-"): value for name, value in changes.items()}
        kept = {**self.headers, **named}
        return replace(self, headers={n: v for n, v in kept.items() if v is not None})

    def without(self, name: str) -> Said:
        return replace(self, headers={n: v for n, v in self.headers.items() if n != name})


Lie = Callable[[Said], Said]


def truth(said: Said) -> Said:
    return said


class Liar:
    """ASGI middleware: every answer passes ``lie``, whole; those at the path ``live`` don't."""

    def __init__(self) -> None:
        self.lie: Lie = truth
        self.live: str | None = None

    def wrap(self, app: ASGIApp) -> ASGIApp:
        async def bent(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or self.lie is truth or scope["path"] == self.live:
                await app(scope, receive, send)
                return
            asked = bytearray()
            parts: list[Message] = []

            async def heard() -> Message:
                message = await receive()
                asked.extend(message.get("body", b""))
                return message

            async def kept(message: Message) -> None:
                parts.append(message)

            await app(scope, heard, kept)
            if parts:
                await _send(self.lie(_said(scope, bytes(asked), parts)), send)

        return bent


def _said(scope: Scope, asked: bytes, parts: list[Message]) -> Said:
    start, *rest = parts
    return Said(
        scope["method"],
        scope["path"],
        start["status"],
        {name.decode(): value.decode("latin-1") for name, value in start["headers"]},
        b"".join(part["body"] for part in rest),
        _object(asked),
        any(name == b"authorization" for name, _ in scope["headers"]),
    )


def _object(asked: bytes) -> dict[str, Any]:
    try:
        value = json.loads(asked)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def _send(said: Said, send: Send) -> None:
    had_length = "content-length" in said.headers
    headers = {**said.headers, **({"content-length": str(len(said.body))} if had_length else {})}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": said.status, "headers": raw})
    await send({"type": "http.response.body", "body": said.body, "more_body": False})
