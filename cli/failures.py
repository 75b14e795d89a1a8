"""What a gateway refuses, or fails at, as a failure of the command: code, facts and a hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx

from cli import remedies
from cli.exits import REFUSED, CommandFailed

MOST_SHOWN: Final = 1000
"""Characters of what a gateway says of a failure."""


def refused(reply: httpx.Response) -> CommandFailed:
    """A refusal as the gateway's envelope states it."""
    try:
        error = reply.json()["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return CommandFailed(REFUSED, f"HTTP {reply.status_code} without an error envelope")
    return failure(error, code, message, status=reply.status_code, wait=reply.headers)


def failure(
    error: Mapping[str, Any],
    code: str,
    message: str,
    *,
    status: int | None = None,
    wait: Mapping[str, str] | None = None,
) -> CommandFailed:
    """A failure with its code, what it concerns, and whether another try makes sense."""
    details = []
    if status is not None:
        details.append(f"status {status}, type {_line(error.get('type', 'unknown'))}")
    if error.get("param"):
        details.append(f"parameter {_line(error['param'])}")
    if error.get("request_id"):
        details.append(f"request id {_line(error['request_id'])}")
    hints = []
    after = (wait or {}).get("retry-after")
    if error.get("retryable"):
        hints.append(
            f"try again in {_line(after)} s" if after else "the same request may work later"
        )
    if remedy := remedies.of_caller(code):
        hints.append(remedy)
    return CommandFailed(
        REFUSED,
        _line(message),
        code=_line(code),
        details=tuple(details),
        hint="; ".join(hints) or None,
    )


def _line(said: object) -> str:
    """What somebody else said, as a part of one line."""
    whole = "".join(each if each.isprintable() else " " for each in str(said))
    return whole if len(whole) <= MOST_SHOWN else f"{whole[:MOST_SHOWN]}..."
