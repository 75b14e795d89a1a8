"""Each word as the first rule that recognises it says, all others as they were."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.spoken_en.abbreviations import SHORT_FORMS, abbreviation
from gateway.spoken_en.amounts import amount
from gateway.spoken_en.dates import MONTH_NUMBERS, day, year_alone
from gateway.spoken_en.numbers import cardinal, ordinal
from gateway.spoken_en.telephones import telephone
from gateway.spoken_en.times import time_of_day
from gateway.spoken_en.words import Line, Said

Rule = Callable[[Line, int], Said | None]

PASSES: Final = 3
"""What a pass says may be what another word's rule looked for: a date begins with a capital."""

_SHORT_WORDS: Final = SHORT_FORMS | {name.lower() for name in MONTH_NUMBERS}
"""Words of letters alone that a rule may know; all others have none."""
_ORDINAL: Final = re.compile(r"([0-9]{1,3}(?:,[0-9]{3}){1,3}|[0-9]{1,9})(?:st|nd|rd|th)")
_NUMBERED: Final = re.compile(r"#([1-9][0-9]{0,2})")


def spoken_en(text: str) -> str:
    """``text`` in words. What isn't recognised stays as it was."""
    for _ in range(PASSES):
        said = _pass(text)
        if said == text:
            break
        text = said
    return text


def _pass(text: str) -> str:
    line = Line(text)
    heard: list[tuple[int, Said]] = []
    place = 0
    while place < len(line.words):
        said = _said(line, place)
        if said is not None:
            heard.append((place, said))
        place += said.used if said is not None else 1
    return line.replaced(heard)


def _said(line: Line, place: int) -> Said | None:
    core = line.core(place)
    if not core or (core.isalpha() and core.lower() not in _SHORT_WORDS):
        return None
    for rule in RULES:
        if (said := rule(line, place)) is not None:
            return said
    return None


def ordinal_number(line: Line, place: int) -> Said | None:
    """1st, 22nd, 1,000th; not 11st."""
    core = line.core(place)
    found = _ORDINAL.fullmatch(core)
    if found is None:
        return None
    said = ordinal(int(found[1].replace(",", "")))
    return Said(said) if said.endswith(core[-2:]) else None


def numbered(line: Line, place: int) -> Said | None:
    """#5; what has more digits is a code."""
    found = _NUMBERED.fullmatch(line.core(place))
    return Said(f"number {cardinal(int(found[1]))}") if found else None


RULES: Final[tuple[Rule, ...]] = (
    day,
    time_of_day,
    year_alone,
    telephone,
    ordinal_number,
    numbered,
    abbreviation,
    amount,
)
