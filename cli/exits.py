"""How commands end: exit codes, and the one exception that carries a message for people.

0    done
1    the service refused or failed the request (its code is printed)
2    wrong usage
3    the gateway can't be reached
4    the stack could not be started, or its workers can't serve
5    what came back is not what its digests and counts say
128+n  ended by signal n (130: Ctrl-C)
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_STARTED: Final = 4
NOT_GENUINE: Final = 5
BY_SIGNAL: Final = 128


class CommandFailed(Exception):
    """Ends a command. ``message`` is one line; ``details`` are printed under it, ``hint`` last."""

    def __init__(
        self,
        exit_code: int,
        message: str,
        *,
        code: str | None = None,
        details: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.code = code
        self.details = details
        self.hint = hint

    @property
    def lines(self) -> list[str]:
        """What a person reads, first the code and the message."""
        head = f"{self.code}: {self.message}" if self.code else self.message
        tail = [f"hint: {self.hint}"] if self.hint else []
        return [f"error: {head}", *(f"  {line}" for line in self.details), *tail]
