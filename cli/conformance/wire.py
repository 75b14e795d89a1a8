"""The wire as the checks see it: whole answers, and streams as they come, all within a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from cli.client import GatewayClient
from cli.conformance.promise import Broken, BrokenOff, Declined
from shared.errors import CODES
from shared.paths import SPEECH

JSON: Final = "application/json"
BUSY: Final = 429
MOST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Raises Broken when the body is no JSON."""
        if self.media_type != JSON:
            raise Broken(f"the content type is {{}}, not {JSON}", self.media_type)
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Broken("the body is no JSON") from error

    def object(self) -> dict[str, Any]:
        """Raises Broken when the body is no JSON object."""
        value = self.json()
        if not isinstance(value, dict):
            raise Broken("the body is no JSON object")
        return value

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Arriving:
    """An answer that is under way."""

    def __init__(self, response: httpx.Response, timeout_s: float) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes. Raises Broken when it takes too long."""
        for piece in self._response.iter_bytes():
            yield piece
            if time.monotonic() > self._deadline:
                raise Broken(
                    f"timed out: the answer had not ended {self._timeout_s:g} s after it began"
                )

    def whole(self) -> Reply:
        return Reply(self.status, self.headers, b"".join(self.pieces()))


class Wire:
    """Asks one gateway. ``timeout_s`` bounds every answer.

    Raises Broken for silence, BrokenOff for an answer that breaks off, CommandFailed when nobody
    can be reached.
    """

    def __init__(
        self,
        client: GatewayClient,
        timeout_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self._sleep = sleep

    def get(self, path: str, **how: Any) -> Reply:
        return self.ask("GET", path, **how)

    def post(self, path: str, body: Any, **how: Any) -> Reply:
        return self.ask("POST", path, body, **how)

    def ask(self, method: str, path: str, body: Any = None, **how: Any) -> Reply:
        """The whole answer to a request with a JSON body, or with these very bytes."""
        with self.begin(method, path, body, **how) as arriving:
            return arriving.whole()

    @contextmanager
    def begin(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        with_key: bool = True,
    ) -> Iterator[Arriving]:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"content-type": JSON, **(headers or {})} if content is not None else headers
        try:
            with self.client.open(
                method,
                path,
                content=content,
                headers=sent,
                timeout_s=self.timeout_s,
                with_key=with_key,
            ) as response:
                yield Arriving(response, self.timeout_s)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise Broken(f"timed out: nothing came for {self.timeout_s:g} s") from error
        except (httpx.NetworkError, httpx.ProtocolError, httpx.DecodingError) as error:
            raise BrokenOff(f"the answer broke off ({type(error).__name__})") from error

    def speak(self, body: Mapping[str, Any], path: str = SPEECH) -> Reply:
        """A 200. Whoever is told to come back later does. Raises Declined, Broken."""
        end = time.monotonic() + self.timeout_s
        while True:
            reply = self.post(path, body)
            if reply.status == 200:
                return reply
            pause_s = pause_of(reply)
            if reply.status != BUSY or pause_s is None or time.monotonic() + pause_s > end:
                raise not_spoken(reply)
            self._sleep(pause_s)


def pause_of(reply: Reply) -> float | None:
    after = reply.headers.get("retry-after", "")
    return min(float(after), MOST_PAUSE_S) if after.isascii() and after.isdigit() else None


def is_allowed(code: str) -> bool:
    """Whether a request that the contract allows may end so all the same."""
    return (code in CODES and CODES[code].retryable) or code == "unauthorized"


def not_spoken(reply: Reply) -> Declined | Broken:
    """What it means that a request was refused which should have been served."""
    try:
        code = str(json.loads(reply.body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return Broken(f"HTTP {reply.status} without an error envelope")
    if is_allowed(code):
        return Declined(code)
    return Broken(f"HTTP {reply.status} {{}} for a request that the contract allows", code)
