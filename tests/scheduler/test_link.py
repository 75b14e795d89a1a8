"""Redis away, as a loop finds it: waited for, said once, and told apart from failures."""

from __future__ import annotations

from typing import Any

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, OutOfMemoryError, ReadOnlyError, ResponseError
from structlog.testing import capture_logs

from scheduler.connections import is_away
from scheduler.link import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SAID_AGAIN_MS, Link

NOT_NOW = (
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "ERR Error running script (call to f_1): @user_script:9: Script killed by user with SCRIPT",
    "ERR Error running script (call to f_1): @user_script: 9: The user executing the script can't "
    "run this command or subcommand",
    "ERR ACL failure in script: User default has no permissions to run the 'get' command",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOREPLICAS Not enough good replicas to write.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "DENIED Redis is running in protected mode because protected mode is enabled",
    "CLUSTERDOWN Hash slot not served",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOSCRIPT No matching script. Please use EVAL.",
    "ERR max number of clients reached",
    "EXECABORT Transaction discarded because of: MISCONF Errors writing to the AOF file",
)
"""What Redis may say while it can't serve."""

REFUSED = RedisConnectionError("refused")
DAMAGED = ResponseError("WRONGTYPE Operation against a key")


def fail(link: Link, error: Exception) -> None:
    with link.attempt():
        raise error


def succeed(link: Link) -> None:
    with link.attempt():
        pass


def events(logs: list[Any]) -> list[str]:
    return [entry["event"] for entry in logs]


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        TimeoutError("no answer"),
        ReadOnlyError("You can't write against a read only replica."),
        OutOfMemoryError("command not allowed"),
        ResponseError(
            "Error running script (call to f_1): @user_script:9: -OOM command not allowed"
        ),
        *map(BaseParser.parse_error, NOT_NOW),
        InvalidResponse("Protocol Error: b'HTTP/1.1 400 Bad Request'"),
    ],
)
@pytest.mark.parametrize("failure", [None, "round_failed"])
def test_what_passes_by_itself_is_an_absence(error: Exception, failure: str | None) -> None:
    """Every loop holds the same errors for Redis being away, and waits."""
    link = Link(failure)

    fail(link, error)

    assert is_away(error)
    assert link.away


def test_an_absence_is_said_once_and_so_is_its_end() -> None:
    """However many attempts fail, the log says with why it began and for how long it was."""
    link = Link()

    with capture_logs() as logs:
        for _ in range(3):
            fail(link, REFUSED)
        succeed(link)
        succeed(link)

    assert events(logs) == ["redis_away", "redis_back"]
    assert logs[0]["error"] == "ConnectionError: refused"
    assert logs[1]["away_ms"] >= 0


def test_a_redis_that_comes_and_goes_floods_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absences that follow each other closely are said once; one that lasts is said, too."""
    now_ms = [1e6]
    monkeypatch.setattr("shared.clock.monotonic_ms", lambda: now_ms[0])
    link = Link()

    with capture_logs() as logs:
        for _ in range(100):
            fail(link, REFUSED)
            succeed(link)
        fail(link, REFUSED)
        now_ms[0] += SAID_AGAIN_MS
        fail(link, REFUSED)
        succeed(link)

    assert events(logs) == ["redis_away", "redis_back"] * 2


def test_the_first_attempt_that_succeeds_knows_of_the_absence() -> None:
    """What has to be asserted anew after an outage can be, before it counts as over."""
    link = Link()
    fail(link, REFUSED)

    with link.attempt():
        assert link.away

    assert not link.away


@pytest.mark.parametrize("error", [DAMAGED, RuntimeError("a defect")])
def test_what_is_no_absence_is_raised(error: Exception) -> None:
    """Nobody waits for what doesn't pass by itself."""
    link = Link()

    with pytest.raises(type(error)):
        fail(link, error)

    assert not is_away(error)
    assert not link.away


def test_a_loop_that_goes_on_hears_of_each_failure() -> None:
    """A failure is logged by its name, every time; it begins no absence and ends none."""
    link = Link("round_failed")
    away: list[bool] = []

    with capture_logs() as logs:
        for error in (DAMAGED, REFUSED, DAMAGED):
            fail(link, error)
            away.append(link.away)
        succeed(link)

    assert away == [False, True, True]
    assert events(logs) == ["round_failed", "redis_away", "round_failed", "redis_back"]


def test_a_defect_ends_also_a_loop_that_goes_on() -> None:
    """Only what Redis answers is lived through."""
    with pytest.raises(RuntimeError):
        fail(Link("round_failed"), RuntimeError("a defect"))


def test_a_link_pauses_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that stays away is tried less and less often, up to a bound, and then anew."""
    pauses: list[float] = []

    class Noted:
        over = True

        def __init__(self, remaining_ms: float) -> None:
            if remaining_ms != SAID_AGAIN_MS:
                pauses.append(remaining_ms)

    monkeypatch.setattr("scheduler.link.Countdown", Noted)
    link = Link()
    pauses.clear()

    for _ in range(7):
        fail(link, REFUSED)
    succeed(link)
    fail(link, REFUSED)

    assert pauses[:2] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS]
    assert pauses[-2:] == [LONGEST_PAUSE_MS, FIRST_PAUSE_MS]


def test_a_link_is_not_due_while_it_pauses() -> None:
    """After a failed attempt the loop does something else first."""
    link = Link()
    assert link.due

    fail(link, REFUSED)

    assert not link.due
