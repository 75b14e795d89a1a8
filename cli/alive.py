"""``psionic-csm worker-alive``: a container's probe for the worker that runs on the same host."""

from __future__ import annotations

import asyncio
import socket

from cli.exits import NOT_STARTED, CommandFailed
from scheduler.connections import connect_async
from scheduler.load import Load
from shared.errors import SpeechError
from shared.settings import QueueSettings


def run(settings: QueueSettings, host: str | None = None) -> None:
    """Raises :class:`CommandFailed` if no worker of this host has a heartbeat that counts.

    While Redis is away nothing can be known, and no worker is blamed for it.
    """
    try:
        hosts = asyncio.run(_hosts(settings))
    except SpeechError:
        return
    if (host or socket.gethostname()) not in hosts:
        raise CommandFailed(NOT_STARTED, "no worker of this host has said anything lately")


async def _hosts(settings: QueueSettings) -> set[object]:
    """The hosts of the namespace's live workers."""
    redis = connect_async(settings.redis_url, max_connections=2)
    try:
        snapshot = await Load(redis, settings.namespace).snapshot()
    finally:
        await redis.aclose()
    return {worker.get("host") for worker in snapshot.workers}
