"""The callers of one gateway that have gone: said to Redis at once, or when it is back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from scheduler.connections import TROUBLE

if TYPE_CHECKING:
    from scheduler.admission import AdmitRequest
    from scheduler.scripts import AsyncScripts
    from shared.settings import QueueSettings

KEPT_MOST: Final = 10_000
"""So many departures are kept until Redis is back; the rest lapse."""
SAID_AT_ONCE: Final = 500
"""So many of those are said in one go, one by one, so that no renewal is late for them."""

log = structlog.get_logger()


class Departures:
    """Who has gone and from which job; a caller is known by its listener's name.

    ``request`` is that of a caller who left in the door: it may listen to the job that its id was
    bound to already, instead of the one that it was given.
    """

    def __init__(self, scripts: AsyncScripts, settings: QueueSettings) -> None:
        self._scripts = scripts
        self._settings = settings
        self._kept: dict[str, tuple[str, AdmitRequest | None]] = {}

    def __len__(self) -> int:
        """How many Redis hasn't heard of."""
        return len(self._kept)

    async def say(self, job_id: str, name: str, request: AdmitRequest | None = None) -> None:
        """Tell Redis, now or, if it can't hear it now, later."""
        try:
            await self._say(job_id, name, request)
        except TROUBLE as error:
            log.warning("leave_failed", job=job_id, error=type(error).__name__)
            self.keep(job_id, name, request)

    def keep(self, job_id: str, name: str, request: AdmitRequest | None = None) -> None:
        """Have it said later."""
        if len(self._kept) < KEPT_MOST:
            self._kept[name] = (job_id, request)

    async def say_kept(self) -> None:
        """Say some of those that were kept, so that their jobs needn't lapse. The latest first: the
        others lapse sooner. Raises what Redis raises.
        """
        for name in list(islice(reversed(self._kept), SAID_AT_ONCE)):
            job_id, request = self._kept[name]
            await self._say(job_id, name, request)
            self._kept.pop(name, None)

    async def _say(self, job_id: str, name: str, request: AdmitRequest | None) -> None:
        bound = () if request is None else (request.principal, request.job.request_id)
        await self._scripts.call("leave", job_id, name, *self._settings.ending, *bound)
