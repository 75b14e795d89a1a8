"""A guard around what RQ is shown: people and RQ's tools read it, no job depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from redis.exceptions import RedisError

from scheduler.connections import UNREADABLE, is_away, is_full, trouble_in_words

log = structlog.get_logger()


@contextmanager
def for_show(what: str) -> Iterator[None]:
    """RQ's records are there to be seen: what is wrong with them may not fail a job or stall one.

    That Redis is full and takes no more of them is no news either; that it is away is raised.
    """
    try:
        yield
    except (RedisError, *UNREADABLE) as error:
        if is_away(error) and not is_full(error):
            raise
        log.warning("rq_record_failed", what=what, error=trouble_in_words(error))
