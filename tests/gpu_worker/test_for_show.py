"""What RQ is shown may go wrong without harm; that Redis is away may not be overlooked."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError
from structlog.testing import capture_logs

from gpu_worker.for_show import for_show


def beat(error: Exception) -> None:
    with for_show("beat"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("WRONGTYPE Operation against a key"),
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    ],
)
def test_what_redis_refuses_is_logged_and_passed_over(error: Exception) -> None:
    """RQ's own errors fail no job, also for want of memory."""
    with capture_logs() as logs:
        beat(error)

    assert [(entry["event"], entry["what"]) for entry in logs] == [("rq_record_failed", "beat")]


@pytest.mark.parametrize(
    "error",
    [
        RedisConnectionError("refused"),
        ResponseError("BUSY Redis is busy running a script."),
        ResponseError("MISCONF Errors writing to the AOF file"),
    ],
)
def test_an_outage_is_raised(error: RedisError) -> None:
    """Whoever holds jobs must learn that Redis is away, however it says so."""
    with pytest.raises(type(error)):
        beat(error)
