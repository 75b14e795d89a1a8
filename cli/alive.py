"""``psionic-csm worker-alive``: a container's probe for the worker that runs on the same host."""

from __future__ import annotations

import json
import socket
from typing import cast

from redis import Redis

from cli.exits import NOT_STARTED, CommandFailed
from scheduler.connections import AWAY, connect
from shared.keys import Keys
from shared.settings import QueueSettings


def run(settings: QueueSettings, host: str | None = None) -> None:
    """Raises :class:`CommandFailed` if no worker of this host has a heartbeat that counts.

    While Redis is away nothing can be known, and no worker is blamed for it.
    """
    client, keys = connect(settings.redis_url), Keys(settings.namespace)
    try:
        hosts = {str(document.get("host")) for document in _documents(client, keys)}
    except AWAY:
        return
    if (host or socket.gethostname()) not in hosts:
        raise CommandFailed(NOT_STARTED, "no worker of this host has said anything lately")


def _documents(client: Redis, keys: Keys) -> list[dict[str, object]]:
    workers = cast(list[bytes], client.zrange(keys.workers, 0, -1))
    found = client.mget([keys.worker(each.decode()) for each in workers]) if workers else []
    return [json.loads(document) for document in found if document is not None]
