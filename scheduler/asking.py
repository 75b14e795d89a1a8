"""Asks Redis on behalf of a caller, who hears the truth when there is no answer.

Whatever Redis says, or whatever it is that answers in its place, that is no fault of the caller's
and mostly none of ours: it is refused for now. What our own scripts stumble over is a defect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from redis.exceptions import DataError, ResponseError

from scheduler.connections import TROUBLE, PoolBusy, is_away, is_full, reading, trouble_in_words
from scheduler.scripts import is_damage
from shared.errors import SpeechError

if TYPE_CHECKING:
    from redis.asyncio import Redis

RETRY_AFTER_S: Final = 2.0
CROWDED_RETRY_S: Final = 1.0

_IN_A_SCRIPT: Final = "user_script"
"""What Redis calls any script, in the text of an error that one raised."""

log = structlog.get_logger()


class QueueAway(SpeechError):
    """Redis itself can't be used now: what one caller hears of it holds for all."""

    def __init__(self, message: str = "the queue can't be reached") -> None:
        super().__init__("queue_unavailable", message, retry_after_s=RETRY_AFTER_S)


def memory_low() -> SpeechError:
    return SpeechError(
        "queue_memory_low", "the queue is near its memory limit", retry_after_s=RETRY_AFTER_S
    )


def _crowded() -> SpeechError:
    return SpeechError(
        "too_many_waiting",
        "this gateway asks the queue too much at once",
        retry_after_s=CROWDED_RETRY_S,
    )


@contextmanager
def asking(redis: Redis) -> Iterator[None]:
    """Ask Redis inside, and make of its reply what is wanted: nothing else. Raises QueueAway,
    ``queue_memory_low`` or ``too_many_waiting`` when there is no answer or none that can be used.
    """
    try:
        with reading(redis):
            yield
    except PoolBusy as error:
        raise _crowded() from error
    except TROUBLE as error:
        if is_full(error):
            raise memory_low() from error
        if is_away(error):
            if isinstance(error, ResponseError):
                raise QueueAway("the queue can't be used now") from error
            raise QueueAway from error
        if is_defect(error):
            raise
        log.error("redis_refused", error=trouble_in_words(error))
        raise QueueAway("the queue can't be used") from error


def is_defect(error: Exception) -> bool:
    """Whether Redis was asked something that no Redis could answer."""
    if isinstance(error, DataError):
        return True
    return isinstance(error, ResponseError) and _IN_A_SCRIPT in str(error) and not is_damage(error)
