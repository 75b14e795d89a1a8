"""How many connections this process can take: each is an open file, and those are counted out.

Beyond what the system allows, a connection could not even be told why. So there are fewer of them
than files, and one more is refused with a code.
"""

from __future__ import annotations

import resource
from typing import Final

import structlog

from shared.environment import SettingsError
from shared.variables import MAX_CONNECTIONS

OTHERS: Final = 128
"""Files that are no client's: the connections to Redis, of which 64 lie in a pool, and our own."""
IDLE_PER_OPEN: Final = 1
"""Connections beside each speech request that ask for nothing now, or for something else."""

log = structlog.get_logger()


class Places:
    """The connections that a gateway takes. A line in the log says when they are all taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._was_full = False

    def has_room(self, connections: int) -> bool:
        """Whether one of so many connections may stay, the newest included."""
        is_full = connections > self.most
        if is_full and not self._was_full:
            log.warning("connections_full", most=self.most)
        self._was_full = is_full or (self._was_full and connections > self.most // 2)
        return not is_full


def places_for(max_connections: int) -> Places:
    """Raises this process's own limit as far as it needs and may.

    Raises SettingsError when that does not reach for so many speech requests.
    """
    wanted = (1 + IDLE_PER_OPEN) * max_connections + OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft
    if _is_below(soft, wanted):
        limit = wanted if _is_below(wanted, hard) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == resource.RLIM_INFINITY:
        limit = wanted
    if limit < max_connections + OTHERS:
        takes = f"at most {limit - OTHERS}" if limit > OTHERS else f"more than {OTHERS} files"
        where = f"where a process may open {limit} files (ulimit -Hn)"
        raise SettingsError(MAX_CONNECTIONS, f"{takes} {where}")
    return Places(limit - OTHERS)


def _is_below(limit: int, other: int) -> bool:
    """As numbers of files, of which RLIM_INFINITY is the largest and may be -1."""
    return limit != resource.RLIM_INFINITY and (other == resource.RLIM_INFINITY or limit < other)
