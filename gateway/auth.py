"""Who calls: a bearer key names the principal that all ids live under."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers

from shared.errors import SpeechError

OPEN: Final = "open"
"""The one principal of a deployment without keys."""


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
    """Probes and scrapers come without a key."""
    return path == "/metrics" or path == "/health" or path.startswith("/health/")
