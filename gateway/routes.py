"""Which path answers what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Scope

from gateway.access import ROUTE
from gateway.endpoints import Endpoints
from gateway.speech_endpoint import SpeechEndpoint
from shared import paths

Get = Callable[[Request], Awaitable[Response]]


def speech_routes(
    native: SpeechEndpoint,
    openai: SpeechEndpoint,
    endpoints: Endpoints,
    *,
    live: Get,
    ready: Get,
    metrics: Get,
    described: Get,
    console: Get,
) -> Sequence[BaseRoute]:
    return (
        _route(paths.SPEECH, native, "POST"),
        _route(paths.OPENAI_SPEECH, openai, "POST"),
        _route(paths.CANCELLATIONS, endpoints.cancel, "POST"),
        _route(paths.RESULT, endpoints.result),
        _route(paths.RESULT_AUDIO, endpoints.audio),
        _route(paths.EVIDENCE, endpoints.evidence),
        _route(paths.OUTCOME, endpoints.outcome, "POST"),
        _route(paths.METADATA, endpoints.metadata),
        _route(paths.LOAD, endpoints.load),
        _route(paths.MODELS, endpoints.models),
        _route(paths.HEALTH, endpoints.health),
        _route(paths.LIVE, live),
        _route(paths.READY, ready),
        _route(paths.METRICS, metrics),
        _route(paths.DESCRIPTION, described),
        _route(paths.CONSOLE, console),
    )


def name_route(routes: Sequence[BaseRoute], scope: Scope) -> None:
    """Leaves in the scope which route the router would take, for what is refused before it."""
    found = [route.matches(scope) for route in routes]
    for kind in (Match.FULL, Match.PARTIAL):
        for match, child in found:
            if match == kind:
                scope[ROUTE] = child[ROUTE]
                return


class NamedRoute(Route):
    """A route that leaves its own pattern in the scope, for logs that must not repeat a path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, child if match == Match.NONE else {**child, ROUTE: self.path}


def _route(path: str, endpoint: ASGIApp | Get, method: str = "GET") -> Route:
    return NamedRoute(path, endpoint, methods=[method])
