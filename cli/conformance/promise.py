"""How a check ends other than well: the exceptions that say so, and the words that raise them.

What is said is printed and filed: names, codes, numbers and states, never a body, a text or a key.
"""

from __future__ import annotations

from typing import Any, Final

MOST_SHOWN: Final = 120


class Broken(Exception):
    """The deployment does not do what the contract says."""


class Declined(Exception):
    """The service has refused or failed for a reason that the contract allows: nothing is proven.

    ``code`` is what it said.
    """

    def __init__(self, code: str) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


class Skipped(Exception):
    """This deployment makes no such promise."""


def promised(is_kept: bool, otherwise: str) -> None:
    """Raises Broken."""
    if not is_kept:
        raise Broken(otherwise)


def same(what: str, expected: Any, actual: Any) -> None:
    """Raises Broken with both values."""
    if expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        raise Broken(f"{what} is {shown(actual)}, not {shown(expected)}")


def shown(value: Any) -> str:
    """A value in a line of a report: short, printable."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
