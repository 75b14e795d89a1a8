"""The probes: whether this process is of use, and whether it would serve now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shared.errors import PROBE_NO

if TYPE_CHECKING:
    from gateway.documents import Documents
    from gateway.speech import Speech
    from scheduler.listeners import Listeners
    from scheduler.subscriptions import EventReader


AWAY: Final = "queue_unavailable"


class Probes:
    """Answers ``/health/live`` and ``/health/ready``."""

    def __init__(
        self, reader: EventReader, listeners: Listeners, speech: Speech, documents: Documents
    ) -> None:
        self._reader = reader
        self._listeners = listeners
        self._speech = speech
        self._documents = documents

    async def live(self, _: Request) -> Response:
        """The process can hear its jobs' events and say that their callers are there; if not, it is
        of no use and may be restarted.
        """
        parts = {"event_reader": self._reader.alive, "listener_renewal": self._listeners.alive}
        return _answer("live", "dead", [name for name, alive in parts.items() if not alive])

    async def ready(self, _: Request) -> Response:
        """Callers are let in, and a ready worker serves the default artifact."""
        reasons = ["draining"] if self._speech.draining else []
        reasons += [AWAY] if self._reader.deaf else await self._documents.not_ready_because()
        return _answer("ready", "not_ready", reasons)


def _answer(yes: str, no: str, reasons: list[str]) -> Response:
    if not reasons:
        return JSONResponse({"status": yes})
    return JSONResponse({"status": no, "reasons": reasons}, status_code=PROBE_NO)
