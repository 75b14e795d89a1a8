"""A gateway over HTTP, as a person at a terminal needs it: answers, or one clear failure."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx

from cli import address
from cli.exits import NOT_GENUINE, REFUSED, UNREACHABLE, USAGE, CommandFailed
from cli.failures import refused
from shared import paths
from shared.environment import SettingsError
from shared.variables import read_caller_key

CONNECT_S: Final = 5.0
READ_S: Final = 40.0
"""Longer than the longest timeout that a gateway grants."""


class GatewayClient:
    """One gateway. Every method raises :class:`CommandFailed`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = address.checked(url)
        self.shown_url = address.without_password(self.url)
        headers = {"authorization": f"Bearer {_checked_key(api_key)}"} if api_key else {}
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
                # no proxy between a machine and itself
                trust_env=not address.is_loopback(self.url),
                transport=transport,
            )
        except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
            raise CommandFailed(
                USAGE,
                f"the environment's proxy or certificates can't be used: {error}",
                hint="look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def health(self) -> dict[str, Any]:
        return self._get(paths.HEALTH)

    def metadata(self) -> dict[str, Any]:
        """As ``health``, and the ``workers``."""
        return self._get(paths.METADATA)

    def load(self) -> dict[str, Any]:
        return self._get(paths.LOAD)

    def is_ready(self) -> bool:
        """Whether it would serve now. False also while nothing answers."""
        try:
            return self._http.get(paths.READY, timeout=2.0).status_code == 200
        except httpx.RequestError:
            return False

    def cancel(
        self, *, request_id: str | None = None, cancellation_id: str | None = None
    ) -> dict[str, Any]:
        ids = {"request_id": request_id, "cancellation_id": cancellation_id}
        body = {name: value for name, value in ids.items() if value is not None}
        return self._json("POST", paths.CANCELLATIONS, body)

    def evidence(self, request_id: str) -> dict[str, Any]:
        return self._get(_of(request_id, paths.EVIDENCE))

    def record_outcome(self, request_id: str, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Record an outcome of a request; the same again is no other."""
        return self._json("POST", _of(request_id, paths.OUTCOME), outcome)

    def speak(self, body: Mapping[str, Any]) -> tuple[bytes, Mapping[str, str]]:
        """The WAV file and the response's headers (their names in lower case)."""
        with self._asking("POST", paths.SPEECH, body) as reply:
            wav = reply.read()
            if not reply.is_success:
                raise refused(reply)
            return wav, {name.lower(): value for name, value in reply.headers.items()}

    def stream(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a JSONL stream, up to and with its terminal or error event."""
        whole = {**body, "stream": True, "stream_format": "jsonl_base64"}
        with self._asking("POST", paths.SPEECH, whole) as reply:
            if not reply.is_success:
                reply.read()
                raise refused(reply)
            for line in reply.iter_lines():
                if not line.strip():
                    continue
                event = _event(line)
                yield event
                if event.get("event") in ("terminal", "error"):
                    return
        raise CommandFailed(NOT_GENUINE, "the stream broke off without a terminal event")

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = READ_S,
        with_key: bool = True,
    ) -> Iterator[httpx.Response]:
        """An answer as it stands, its body yet to be read: for who judges the wire itself.
        Without the key, ``headers`` may hold another one.

        What goes wrong once it is connected is as httpx raises it.
        """
        limits = httpx.Timeout(timeout_s, connect=CONNECT_S)
        request = self._http.build_request(
            method, path, content=content, headers=headers, timeout=limits
        )
        if not with_key and "authorization" not in httpx.Headers(headers):
            request.headers.pop("authorization", None)
        try:
            response = self._http.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise self._unreachable(error) from error
        try:
            yield response
        finally:
            response.close()

    def _get(self, path: str) -> dict[str, Any]:
        return self._json("GET", path)

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        with self._asking(method, path, body) as reply:
            reply.read()
        if not reply.is_success:
            raise refused(reply)
        try:
            document = reply.json()
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self.no_gateway()
        return document

    def no_gateway(self) -> CommandFailed:
        """For an answer that no gateway of any version gives."""
        return CommandFailed(
            REFUSED, f"what answers at {self.shown_url} is not a Psionic CSM gateway"
        )

    @contextmanager
    def _asking(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Iterator[httpx.Response]:
        """As ``open``, and what goes wrong, here or while the answer is read, is told in a line."""
        has_begun = False
        try:
            with self.open(method, path, **({} if body is None else _json_body(body))) as reply:
                has_begun = True
                yield reply
        except httpx.TimeoutException as error:
            raise CommandFailed(UNREACHABLE, f"{self.shown_url} did not answer in time") from error
        except httpx.DecodingError as error:
            raise self.no_gateway() from error
        except httpx.RequestError as error:
            raise (self._broken_off() if has_begun else self._unreachable(error)) from error

    def _broken_off(self) -> CommandFailed:
        return CommandFailed(
            NOT_GENUINE,
            f"the answer of {self.shown_url} broke off before its end",
            hint="the gateway, or something on the way to it, was lost; ask again",
        )

    def _unreachable(self, error: httpx.RequestError) -> CommandFailed:
        why = str(error) or type(error).__name__
        if isinstance(error, httpx.ProtocolError):  # in whose words there are those of the server
            why = "it hung up without an answer, or speaks no HTTP"
        proxy = address.proxy_for(self.url)
        if _is_about_tls(error):
            hint = "a gateway without TLS is at http://; SSL_CERT_FILE names another authority"
        elif proxy:
            hint = f"{proxy} sets a proxy: NO_PROXY={urlsplit(self.url).hostname} goes round it"
        else:
            hint = "start one with: psionic-csm up, or name another with --url"
        return CommandFailed(
            UNREACHABLE, f"can't reach a gateway at {self.shown_url} ({why})", hint=hint
        )


@contextmanager
def understood() -> Iterator[None]:
    """Around taking a gateway's document apart. Raises :class:`CommandFailed` for one that is of
    another shape.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CommandFailed(
            NOT_GENUINE, f"the answer is not as the contract has it ({what})"
        ) from error


def api_key_from(environment: Mapping[str, str] = os.environ) -> str | None:
    """As ``read_caller_key``; none where a gateway's keys are not for this user to read."""
    try:
        return read_caller_key(environment)
    except SettingsError:
        return None


def _of(request_id: str, path: str) -> str:
    return path.format(request_id=quote(request_id, safe=""))


def _json_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """In ASCII, so that whatever a terminal sends is the gateway's to judge."""
    return {"content": json.dumps(body), "headers": {"content-type": "application/json"}}


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise CommandFailed(NOT_GENUINE, "the stream holds a line that is no event")
    return event


def _checked_key(key: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise CommandFailed(USAGE, "the API key has characters that no key has")
    return key


def _is_about_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
