"""How commands end: exit codes, and the one exception that carries a message for people.

0    done; for ``up``: stopped by Ctrl-C or SIGTERM
1    the service refused or failed the request (its code is printed)
2    wrong usage
3    the gateway can't be reached
4    this machine stands in the way: the stack can't start or its workers can't serve, a setting or
     an artifact can't be used, a file can't be read or written
5    what came back is not what its digests and counts, or the contract, say, or broke off
6    a benchmark missed a bound
128+n  ended by signal n (130: Ctrl-C, 143: SIGTERM, 141: the reader of the output is gone)
"""

from __future__ import annotations

from typing import Final, Self

OK: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_STARTED: Final = 4
NOT_GENUINE: Final = 5
MISSED: Final = 6
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

    @classmethod
    def by(cls, error: OSError, what: str = "") -> Self:
        """What this machine refused, and for which file if it is known; ``what`` says to whom."""
        why = error.strerror or str(error) or type(error).__name__
        place = f"{error.filename}: " if error.filename is not None else ""
        return cls(NOT_STARTED, f"{what}{place}{why}")

    @property
    def lines(self) -> list[str]:
        """What a person reads, first the code and the message."""
        head = f"{self.code}: {self.message}" if self.code else self.message
        tail = [f"hint: {self.hint}"] if self.hint else []
        return [f"error: {head}", *(f"  {line}" for line in self.details), *tail]
