"""From one amount to another: which two numbers with a dash between them are a range."""

from __future__ import annotations

import re
from typing import Final

_DASHED: Final = re.compile(r"([^-\u2013]{1,20})[-\u2013]([^-\u2013]{1,20})")
_SHORT: Final = re.compile(
    r"(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3}){0,4})(?:\.[0-9]{1,15})?|[1-9][0-9]{3}"
)
_LONG: Final = re.compile(r"(?<![.0-9])[0-9]{4}")
_OTHERWISE_KNOWN: Final = re.compile(r"[79][-\u2013]11|1[-\u2013](?:8(?:00|33|44|55|66|77|88)|900)")
"""A shop, a day in September, what is dialled for nothing."""


def ends(core: str) -> tuple[str, str] | None:
    """What is written before and after the one dash of a word."""
    found = _DASHED.fullmatch(core)
    if found is None or _OTHERWISE_KNOWN.fullmatch(core):
        return None
    return found[1], found[2]


def is_short(written: str) -> bool:
    """A bare number that may begin or end a range: no code, nothing with zeros in front."""
    return _SHORT.fullmatch(written) is not None


def is_long(core: str) -> bool:
    """Whether it has four digits without a separator at one end, as years and codes have."""
    return _LONG.search(core) is not None
