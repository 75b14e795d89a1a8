"""Who calls: a bearer key names the principal that all ids live under."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.errors import SpeechError
from shared.paths import CONSOLE, HEALTH, METRICS

OPEN: Final = "open"
"""The one principal of a deployment without keys."""
PRINCIPAL: Final = "psionic.principal"
"""Where a request's scope has its caller's principal."""

Refuse = Callable[[Request, Exception], Awaitable[Response]]


class Principals:
    """The keys of a deployment, kept as digests. None: everybody is the same principal."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    def identify(self, headers: Headers) -> str:
        """The principal of a request. Raises SpeechError("unauthorized").

        Digests of equal length are compared, each with every key, so that time tells nothing.
        """
        if not self._digests:
            return OPEN
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        known = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != "bearer" or not any(known):
            raise SpeechError("unauthorized", "a valid API key is needed as a bearer token")
        return given.hex()[:16]


def is_public(path: str) -> bool:
    """Probes and scrapers come without a key; so does the console's page, which holds no data."""
    return path in (METRICS, HEALTH, CONSOLE) or path.startswith(f"{HEALTH}/")


class Authentication:
    """ASGI middleware that names the caller's principal, or answers ``unauthorized``."""

    def __init__(self, app: ASGIApp, principals: Principals, refuse: Refuse) -> None:
        self._app = app
        self._principals = principals
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_public(scope["path"]):
            try:
                scope[PRINCIPAL] = self._principals.identify(Headers(scope=scope))
            except SpeechError as error:
                refusal = await self._refuse(Request(scope), error)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
