"""The callers that wait at one gateway: admitted, listening, heard, and gone.

Each waiting caller is a member of its job's listener set, renewed here for all callers in one call.
When the last one leaves, or its gateway dies and the membership lapses, the job is abandoned.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import structlog

from scheduler.admission import Admission, AdmitRequest, Admitted
from scheduler.asking import QueueAway, asking
from scheduler.connections import TROUBLE, reading
from scheduler.departures import Departures
from scheduler.link import Link
from scheduler.scripts import AsyncScripts
from scheduler.subscriptions import EventReader, Subscription
from shared.errors import SpeechError
from shared.keys import Keys
from shared.messages import End, Event

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from scheduler.results import Results
    from shared.settings import QueueSettings

RENEW_BATCH: Final = 500
AWAY_PAUSE_MS: Final = 250
"""Between two tries while Redis is away: once it is back, nobody lapses for one lease, and by then
all memberships must have been renewed."""
RETRY_LOST_S: Final = 1.0
PROMPT_S: Final = 0.2
"""How long one who goes in the door is kept for Redis to hear of it."""

log = structlog.get_logger()


class Caller:
    """One waiting caller and the events of its job. Leave when done, whatever happened."""

    def __init__(
        self,
        listeners: Listeners,
        reader: EventReader,
        admitted: Admitted,
        name: str,
        subscription: Subscription,
    ) -> None:
        self.admitted = admitted
        self.name = name
        self._listeners = listeners
        self._reader = reader
        self.subscription = subscription
        self.recorded: End | None = None
        """Of a replay, the end that it will come to."""

    @property
    def job_id(self) -> str:
        return self.admitted.job_id

    async def next_event(self) -> Event:
        """The job's next event. Raises ``queue_unavailable`` when the job is gone from Redis."""
        event = await self.subscription.next()
        if event is None:
            raise SpeechError(
                "queue_unavailable", "the queue lost this job", retry_after_s=RETRY_LOST_S
            )
        return event

    def start_over(self) -> None:
        """Hear all events once more, from the first."""
        self._reader.unsubscribe(self.subscription)
        self.subscription = self._reader.subscribe(self.job_id, news=True, final=True)

    async def has_ended(self) -> bool:
        """Whether every event that there will ever be is there, to be heard without another word
        from the writers. False while Redis is away.
        """
        try:
            ended = await self._reader.has_ended(self.job_id)
        except TROUBLE:
            return False
        if ended:
            self.subscription.lose()
        return ended

    async def leave(self) -> None:
        """Stop listening. Safe after the end, twice, and while Redis is away (then it lapses)."""
        await self._listeners.leave(self)


class Listeners:
    """All waiting callers of one gateway process."""

    def __init__(
        self,
        redis: Redis,
        settings: QueueSettings,
        reader: EventReader,
        admission: Admission,
        results: Results,
        gateway_id: str,
    ) -> None:
        self._redis = redis
        self._keys = Keys(settings.namespace)
        self._settings = settings
        self._scripts = AsyncScripts(redis, settings.namespace)
        self.departures = Departures(self._scripts, settings)
        self._reader = reader
        self._admission = admission
        self._results = results
        self._gateway_id = gateway_id
        self._callers: dict[str, Caller] = {}
        self._numbers = count(1)
        self._task: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def alive(self) -> bool:
        """Whether callers are being renewed, as long as this is open."""
        return self._closing or (self._task is not None and not self._task.done())

    @property
    def deaf(self) -> bool:
        """Whether callers would hear nothing of their jobs."""
        return self._reader.deaf

    def start(self) -> None:
        self._task = asyncio.create_task(self._renew_for_ever(), name="listener-renewal")
        self._task.add_done_callback(_log_death)

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await asyncio.gather(*(caller.leave() for caller in list(self._callers.values())))
        await asyncio.gather(*self._leaving)
        with suppress(*TROUBLE):
            await self._redis.delete(self._keys.gateway(self._gateway_id))
            await self._redis.zrem(self._keys.gateways, self._gateway_id)

    async def join(self, request: AdmitRequest) -> Caller:
        """Pass the door and listen. Raises what :meth:`Admission.admit` raises.

        The subscription stands before the job can have events, and a caller that goes away while
        this runs leaves nothing behind.
        """
        job_id = self._admission.new_job_id()
        name = f"{self._gateway_id}|{next(self._numbers)}"
        subscription = self._reader.subscribe(job_id)
        try:
            admitted = await self._admission.admit(request, job_id, name)
        except asyncio.CancelledError:
            self._reader.unsubscribe(subscription)
            await self._say_departure(job_id, name, request)
            raise
        except Exception as error:
            self._reader.unsubscribe(subscription)
            if isinstance(error, QueueAway):
                # Redis may carry out yet what it didn't answer in time: nobody waits for that job.
                self.departures.keep(job_id, name, request)
            raise
        if admitted.kind != "admitted":
            self._reader.unsubscribe(subscription)
            is_replay = admitted.kind == "replay"
            subscription = self._reader.subscribe(admitted.job_id, news=True, final=is_replay)
        caller = Caller(self, self._reader, admitted, name, subscription)
        if admitted.kind == "replay":
            await self._replay(caller)
        else:
            self._callers[name] = caller
        return caller

    async def _say_departure(self, job_id: str, name: str, request: AdmitRequest) -> None:
        """Have it said, and wait for that as long as a prompt Redis takes."""
        saying = asyncio.create_task(self.departures.say(job_id, name, request), name="departure")
        self._leaving.add(saying)
        saying.add_done_callback(self._leaving.discard)
        await asyncio.wait({saying}, timeout=PROMPT_S)

    async def leave(self, caller: Caller) -> None:
        self._reader.unsubscribe(caller.subscription)
        if self._callers.pop(caller.name, None) is None:
            return
        await self.departures.say(caller.job_id, caller.name)

    async def _replay(self, caller: Caller) -> None:
        """See to it that a replay hears an end: a cancelled job may have no stream any more."""
        try:
            with asking(self._redis):
                has_ended = await self._reader.has_ended(caller.job_id)
            record = await self._results.read(caller.job_id)
            caller.recorded = record.end if record else None
            if has_ended:
                return
            if caller.recorded is None:
                raise SpeechError(
                    "queue_unavailable",
                    "the outcome of this request is no longer kept",
                    retry_after_s=RETRY_LOST_S,
                )
            caller.subscription.deliver(caller.recorded)
        except BaseException:
            self._reader.unsubscribe(caller.subscription)
            raise

    async def _renew_for_ever(self) -> None:
        link = Link(failure="listener_renewal_failed")
        while not self._closing:
            with link.attempt():
                await self._renew_all()
                await self.departures.say_kept()
            pause_ms = self._settings.listener_renew_ms
            await asyncio.sleep((min(pause_ms, AWAY_PAUSE_MS) if link.away else pause_ms) / 1000)

    async def _renew_all(self) -> None:
        """Say how many callers wait here, also that none does, and renew them all."""
        names = list(self._callers)
        for i in range(0, max(1, len(names)), RENEW_BATCH):
            here = map(self._callers.get, names[i : i + RENEW_BATCH])  # some left meanwhile
            await self._renew([caller for caller in here if caller is not None])

    async def _renew(self, callers: list[Caller]) -> None:
        flat = [part for caller in callers for part in (caller.job_id, caller.name)]
        with reading(self._redis):
            answers = await self._scripts.call(
                "listen",
                self._settings.listener_ttl_ms,
                self._gateway_id,
                len(self._callers),
                *flat,
            )
            heard = list(zip(callers, map(int, answers), strict=True))
        for caller, more_to_come in heard:
            if not more_to_come:
                caller.subscription.lose()


def _log_death(renewal: asyncio.Task[None]) -> None:
    if not renewal.cancelled() and (error := renewal.exception()):
        log.error("listener_renewal_died", error=type(error).__name__)


def new_gateway_id() -> str:
    """Unique for each gateway process, so that nobody hears another's wake stream."""
    return f"gw-{uuid4().hex[:16]}"
