"""One structured line per request: ids, code, status, latency and bytes; never what was said.

It also notes refusals for want of capacity (``gateway.refusals``).
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.envelope import REQUEST_ID_HEADER, id_headers
from gateway.ids import readable_id
from gateway.metrics import OK, GatewayMetrics
from gateway.refusals import Refusals
from scheduler.connections import TROUBLE, trouble_in_words
from shared.clock import monotonic_ms
from shared.errors import CODES, NOT_NOW, SpeechError
from shared.paths import (
    CANCELLATIONS,
    HEALTH,
    LOAD,
    METADATA,
    METRICS,
    OPENAI_SPEECH,
    SPEECH,
)
from shared.tracing import HEADER, Span, Spans, TraceContext, Unrecorded

ENTRY: Final = "psionic.access"
ROUTE: Final = "psionic.route"
POLLED: Final = (METADATA, LOAD, METRICS)
"""Like probes, asked again and again by machines."""

DEFECT: Final = "internal_error"
UNMATCHED: Final = "unmatched"
"""The route of a path that has none."""
UNSAID: Final = "unsaid"
"""What counts where no code was told: a probe's 503, an answer that never left."""

SPAN: Final = "psionic.span"
SPEAKING: Final = (SPEECH, OPENAI_SPEECH)
TRACED: Final = (*SPEAKING, CANCELLATIONS)
REQUEST_ID: Final = REQUEST_ID_HEADER.encode()

log = structlog.get_logger()


def entry_of(scope: Scope) -> dict[str, Any]:
    """What the request's line will say; routes add ids and codes to it."""
    entry: dict[str, Any] = scope.setdefault(ENTRY, {})
    return entry


def note_failure(entry: dict[str, Any], error: SpeechError) -> None:
    """What the caller is told and, where Redis is behind that, what it said."""
    entry["code"] = error.code
    if isinstance(cause := error.__cause__, TROUBLE):
        entry["error"] = trouble_in_words(cause)


class AccessLog:
    """ASGI middleware that logs each HTTP request when its answer has left or broken off."""

    def __init__(
        self, app: ASGIApp, refusals: Refusals, metrics: GatewayMetrics, spans: Spans
    ) -> None:
        self._app = app
        self._refusals = refusals
        self._metrics = metrics
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_ms = monotonic_ms()
        span = self._begin(scope, started_ms)
        status = 0
        sent_bytes = 0
        last_ms = None

        async def counting(message: Message) -> None:
            nonlocal status, sent_bytes, last_ms
            if message["type"] == "http.response.start":
                status = message["status"]
                message = _correlated(scope, message)
                if status in NOT_NOW and self._metrics.speaks(_route(scope)):
                    self._refusals.note(entry_of(scope).get("code", UNSAID))
            sent_bytes += len(message.get("body", b""))
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                last_ms = monotonic_ms()

        try:
            await self._app(scope, receive, counting)
        except Exception:
            entry_of(scope)["code"] = DEFECT
            raise
        finally:
            latency_ms = (last_ms or monotonic_ms()) - started_ms
            self._count(scope, status, sent_bytes, latency_ms)
            self._write(scope, status, sent_bytes, latency_ms)
            _end(span, scope, status)

    def _begin(self, scope: Scope, started_ms: float) -> Span:
        """The request's span; one that nobody records for what isn't worth one."""
        context = _trace_of_caller(Headers(scope=scope))
        if context is not None:
            entry_of(scope)["trace_id"] = context.trace_id
        span: Span = Unrecorded(context)
        if scope["method"] == "POST" and scope["path"] in TRACED:
            span = self._spans.begin(f"POST {scope['path']}", context, started_ms, serves=True)
        scope[SPAN] = span
        return span

    def _count(self, scope: Scope, status: int, sent_bytes: int, latency_ms: float) -> None:
        code = entry_of(scope).get("code") or (OK if 0 < status < 400 else UNSAID)
        route = _route(scope)
        self._metrics.answered(route, code, latency_ms / 1000, sent_bytes)
        if status in NOT_NOW and self._metrics.speaks(route) and code in CODES:
            self._metrics.rejected(code)

    def _write(self, scope: Scope, status: int, sent_bytes: int, latency_ms: float) -> None:
        route = _route(scope)
        (log.debug if _is_polled(scope["method"], route) else log.info)(
            "request",
            method=scope["method"] if scope["method"].isalpha() else "?",
            route=route,
            status=status or None,
            latency_ms=round(latency_ms, 1),
            bytes=sent_bytes,
            **{name: fact for name, fact in entry_of(scope).items() if fact is not None},
        )


def _correlated(scope: Scope, message: Message) -> Message:
    """The beginning of an answer, with the id that its request's headers gave. What is spoken has
    its own: a body's id goes first, and where that can be none, no other is the request's.
    """
    names = {name for name, _ in message["headers"]}
    request_id = readable_id(Headers(scope=scope))
    if request_id is None or REQUEST_ID in names or scope["path"] in SPEAKING:
        return message
    named = [(name.encode(), value.encode()) for name, value in id_headers(request_id).items()]
    return {**message, "headers": [*message["headers"], *named]}


def _trace_of_caller(headers: Headers) -> TraceContext | None:
    given = headers.getlist(HEADER)
    return TraceContext.parse(given[0]) if len(given) == 1 else None


def _end(span: Span, scope: Scope, status: int) -> None:
    entry = entry_of(scope)
    facts = {name: entry.get(name) for name in ("request_id", "job", "finish_reason", "replayed")}
    span.end(entry.get("code"), status=status, **facts)


def _route(scope: Scope) -> str:
    """The pattern that matched, since a path may hold anything."""
    return str(scope.get(ROUTE, UNMATCHED))


def _is_polled(method: str, route: str) -> bool:
    return method == "GET" and (route.startswith(HEALTH) or route in POLLED)
