"""How a check ends other than well: the exceptions that say so, and the words that raise them.

What is said is printed and filed: names, codes, numbers and states, never a body, a text or a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.conformance.withholding import shown


class Remark:
    """A line of a report: our words, with a ``{}`` for each value that the deployment gave, if any.

    Values are kept as they came, for only who knows the secrets can show them.
    """

    def __init__(self, words: str, *values: Any) -> None:
        self._words, self._values = words, values

    def told(self, secrets: Sequence[str] = ()) -> str:
        if not self._values:
            return self._words
        return self._words.format(*(shown(value, secrets) for value in self._values))


class Broken(Exception):
    """The deployment does not do what the contract says. Arguments are those of a remark."""

    def __init__(self, words: str, *values: Any) -> None:
        super().__init__(words)
        self.remark = Remark(words, *values)


class BrokenOff(Broken):
    """The connection ended before the answer did."""


class Declined(Exception):
    """The service has refused or failed for a reason that the contract allows: nothing is proven.

    ``code`` is what it said.
    """

    def __init__(self, code: str) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


class Skipped(Exception):
    """This deployment makes no such promise."""


def promised(is_kept: bool, otherwise: str, *values: Any) -> None:
    """Raises Broken."""
    if not is_kept:
        raise Broken(otherwise, *values)


def same(what: str, expected: Any, actual: Any) -> None:
    """Raises Broken with both values."""
    if expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        raise Broken(f"{what} is {{}}, not {{}}", actual, expected)
