"""What is refused, or goes wrong, anywhere behind the door: answered in the error envelope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.access import entry_of, note_failure
from gateway.envelope import error_response
from gateway.ids import readable_id
from gateway.metrics import CLIENT_GONE
from gateway.routes import name_route
from shared.errors import CODES, SpeechError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from gateway.facts import Facts
    from shared.governance.artifacts import Artifact

UNROUTED: Final = {
    "method_not_allowed": "this path does not take that method",
    "route_not_found": "there is nothing at this path",
}

ExceptionHandler = Callable[[Request, Exception], Awaitable[Response]]


class Failures:
    """Makes answers of exceptions. ``artifact``: what is rolled back from, when nothing else is
    known of a request.
    """

    def __init__(self, facts: Facts, artifact: Artifact) -> None:
        self._facts = facts
        self._artifact = artifact

    @property
    def handlers(self) -> Mapping[Any, ExceptionHandler]:
        """Starlette's exception handlers: one for each kind that can get there."""
        return {
            SpeechError: self._refused,
            HTTPException: self._unrouted,
            ClientDisconnect: _gone,
            Exception: self._broken,
        }

    async def stranger(self, request: Request, error: Exception) -> Response:
        """Of a caller without a key, who never comes to a route."""
        app: Starlette = request.scope["app"]
        name_route(app.routes, request.scope)
        return await self._refused(request, error)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, SpeechError)
        entry = entry_of(request.scope)
        note_failure(entry, error)
        return error_response(
            error,
            served=await self._facts.served(self._artifact),
            request_id=entry.get("request_id") or readable_id(request.headers),
            rollback_target=self._artifact.manifest.rollback_target,
        )

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = await self._refused(request, _refusal_with(error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def _broken(self, request: Request, _: Exception) -> Response:
        return await self._refused(
            request, SpeechError("internal_error", "the service has a defect; it was recorded")
        )


def _refusal_with(status: int) -> SpeechError:
    """What Starlette refuses by a bare status, with its code."""
    for code, message in UNROUTED.items():
        if CODES[code].status == status:
            return SpeechError(code, message)
    return SpeechError("malformed_json", "the request can't be read")


async def _gone(request: Request, _: Exception) -> Response:
    entry_of(request.scope)["code"] = CLIENT_GONE
    return Response(status_code=CODES["malformed_json"].status)  # which nobody gets
