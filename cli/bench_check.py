"""``psionic-csm bench check``: whether a running deployment's books balance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from benchmarks.books import check
from cli.exits import NOT_STARTED, REFUSED, USAGE, CommandFailed
from scheduler.connections import UNREADABLE, connect, trouble_in_words
from shared.settings import QueueSettings

if TYPE_CHECKING:
    from redis import Redis


def run(redis_url: str | None, namespace: str | None, settle_s: float) -> None:
    """Print what was found. Raises :class:`CommandFailed` for any fault, and without a Redis."""
    settings = QueueSettings.from_env()
    client = _opened(redis_url or settings.redis_url)
    try:
        verdict = check(client, namespace or settings.namespace, settle_s)
    except (RedisError, *UNREADABLE) as error:
        raise CommandFailed(
            NOT_STARTED, f"can't read the books: {trouble_in_words(error)}"
        ) from error
    finally:
        client.close()
    books = verdict.books
    sys.stdout.write(
        f"{sum(map(len, books.waiting.values()))} waiting, "
        f"{sum(map(len, books.running.values()))} running, {len(books.workers)} workers, "
        f"{sum(books.gateways.values())} callers with {len(books.gateways)} gateways, "
        f"{verdict.looks} looks\n"
    )
    if not verdict.balanced:
        raise CommandFailed(
            REFUSED,
            "the books don't balance",
            details=(*verdict.faults, *verdict.differences),
        )


def _opened(url: str) -> Redis:
    try:
        return connect(url, timeout_s=10)
    except ValueError as error:
        raise CommandFailed(USAGE, f"not a Redis URL ({error})") from error
