"""True load: depth, in flight, lanes and waits of each queue, and what each worker says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
from redis.exceptions import ResponseError

from scheduler.asking import asking
from scheduler.scripts import AsyncScripts
from shared.messages import CANCELLED, ERROR, LENGTH, STOP, TIMEOUT, WORKER_LOST

if TYPE_CHECKING:
    from redis import Redis as BlockingRedis
    from redis.asyncio import Redis

    from scheduler.scripts import Scripts

log = structlog.get_logger()

ENDED_BY: Final = (STOP, LENGTH, CANCELLED, TIMEOUT, ERROR, WORKER_LOST, "discarded")
"""Why jobs ended, as the load script counts them; a discarded job had no readable record."""

_HALF_OF_A_PAIR: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Of two that are one character, or alone, which is none."""

MEMORY_LIMIT: Final = 0.8
"""The share of Redis's memory limit above which nothing new is admitted."""


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One artifact's queue. Times in milliseconds.

    ``estimated_wait_ms`` is that of the interactive job that comes last. Means forget slowly.
    ``estimated_wait_error_ms`` is the mean distance between what interactive jobs that had to wait
    were told at the door and what they waited, ``estimated_wait_bias_ms`` the mean difference
    (above 0: told too long). ``deadline_margin_ms`` is how much longer than the estimate the wait
    is that the door holds a deadline against, as measured: 0 while a lane is free.
    """

    queue: str
    depth: int = 0
    batch_depth: int = 0
    in_flight: int = 0
    lanes: int = 0
    estimated_wait_ms: int = 0
    oldest_wait_ms: int = 0
    admitted: int = 0
    ended: int = 0
    retried: int = 0
    leases_lost: int = 0
    mean_service_ms: float = 0.0
    mean_frames: float = 0.0
    mean_budget_frames: float = 0.0
    estimated_wait_error_ms: float = 0.0
    estimated_wait_bias_ms: float = 0.0
    deadline_margin_ms: int = 0
    ended_by: Mapping[str, int] = field(default_factory=dict)

    @property
    def mean_frame_ms(self) -> float:
        """Measured service per frame that was spoken; 0.0 before anything was."""
        return self.mean_service_ms / self.mean_frames if self.mean_frames else 0.0

    @property
    def budget_used(self) -> float:
        """The share of their frame budgets that jobs use; 1.0 before anything was measured."""
        return self.mean_frames / self.mean_budget_frames if self.mean_budget_frames else 1.0


NUMBERS: Final[Mapping[str, type[int] | type[float]]] = {
    each.name: float if each.type == "float" else int
    for each in fields(QueueLoad)
    if each.name not in ("queue", "ended_by")
}
"""The fields that the load script gives as numbers."""


@dataclass(frozen=True, slots=True)
class GatewayLoad:
    """One live gateway, as it said ``age_ms`` ago."""

    gateway_id: str
    age_ms: int
    waiting_callers: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """All queues, live workers and live gateways at one moment."""

    queues: dict[str, QueueLoad] = field(default_factory=dict)
    workers: tuple[dict[str, Any], ...] = ()
    gateways: tuple[GatewayLoad, ...] = ()
    memory_ratio: float = 0.0

    def queue(self, name: str) -> QueueLoad:
        return self.queues.get(name, QueueLoad(name))

    @property
    def memory_low(self) -> bool:
        return self.memory_ratio >= MEMORY_LIMIT


class Load:
    """Reads the load of one namespace, anew each time."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._scripts = AsyncScripts(redis, namespace)

    async def snapshot(self) -> LoadSnapshot:
        """Raises :class:`SpeechError` ``queue_unavailable`` when Redis is away."""
        with asking(self._redis):
            reply = await self._scripts.call("load")
            return parse(reply, await self._memory_ratio())

    async def _memory_ratio(self) -> float:
        try:
            info = await self._redis.info("memory")
        except ResponseError:
            return 0.0  # a server without INFO sets no limit that could be known
        return _used_ratio(info)


def read_load(redis: BlockingRedis, scripts: Scripts) -> LoadSnapshot:
    """As ``Load.snapshot``, for a thread that may block. Raises what Redis raises."""
    reply = scripts.call("load")
    try:
        info: Any = redis.info("memory")
    except ResponseError:
        return parse(reply)
    return parse(reply, _used_ratio(info))


def _used_ratio(info: Mapping[str, Any]) -> float:
    limit = int(info.get("maxmemory", 0))
    return int(info["used_memory"]) / limit if limit else 0.0


def parse(reply: list[bytes], memory_ratio: float = 0.0) -> LoadSnapshot:
    """What the load script says."""
    queues, workers, gateways = _sections(reply)
    loads = [_queue_load(text) for text in queues]
    return LoadSnapshot(
        queues={each.queue: each for each in loads},
        workers=tuple(_documents(workers[::2], workers[1::2])),
        gateways=tuple(
            GatewayLoad(name.decode(), int(age), int(callers))
            for name, age, callers in zip(*(gateways[i::3] for i in range(3)), strict=True)
        ),
        memory_ratio=memory_ratio,
    )


def _sections(reply: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    first = reply.index(b"")
    second = reply.index(b"", first + 1)
    return reply[:first], reply[first + 1 : second], reply[second + 1 :]


def _documents(ages: Iterable[bytes], texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What the workers say of themselves. One that can't be read is as good as silent."""
    for age, text in zip(ages, texts, strict=True):
        try:
            document = _document(text)
        except (ValueError, RecursionError) as error:
            log.error("worker_document_unreadable", why=type(error).__name__)
            continue
        yield {**document, "heartbeat_age_ms": int(age)}


def _document(text: bytes) -> dict[str, Any]:
    """What a worker says, as it can be said again: a file's name in it may be no text. Raises
    ValueError for what is no such document.
    """
    document = json.loads(text, parse_constant=_refuse_constant)
    if _HALF_OF_A_PAIR.search(text):
        document = json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    if not isinstance(document, dict) or not isinstance(document.get("state", ""), str):
        raise ValueError("no document of a worker")
    refusal = document.get("refusal")
    if refusal is not None and not isinstance(refusal, dict):
        raise ValueError("no refusal")
    if refusal and not isinstance(refusal.get("pending_phases") or [], list):
        raise ValueError("no phases")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _queue_load(text: bytes) -> QueueLoad:
    """One queue as the script tells it, field by field."""
    said = json.loads(text)
    numbers: dict[str, Any] = {name: kind(said[name]) for name, kind in NUMBERS.items()}
    ended_by = {reason: int(said["ended_by"][reason]) for reason in ENDED_BY}
    return QueueLoad(said["queue"], ended_by=ended_by, **numbers)
