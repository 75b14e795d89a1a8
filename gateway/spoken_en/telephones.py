"""Groups of digits that count nothing: telephone, card and account numbers, said digit by digit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.spoken_en.dates import YEAR
from gateway.spoken_en.numbers import digit_by_digit
from gateway.spoken_en.words import Line, Said

MOST_GROUPS: Final = 6
MOST_DIGITS: Final = 24
FEWEST_DIALLED: Final = 7
"""Of a whole number, without its country's code; fewer are formations, shares, steps."""
FEWEST_SPACED: Final = 10
"""Of groups without dashes."""

_AREA: Final = re.compile(r"[0-9]{3}")
_LOCAL: Final = re.compile(r"[0-9]{3}[-.][0-9]{4}")
_CHAIN: Final = re.compile(r"\+?[0-9]{1,5}(?:-[0-9]{1,5}){2,5}")
_DOTTED: Final = re.compile(r"[0-9]{3}\.[0-9]{3}\.[0-9]{4}")
_DATE_LIKE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2}-[0-9]{2,4}")
_COUNTRY: Final = re.compile(r"\+[0-9]{1,3}")
_GROUP: Final = re.compile(r"[0-9]{1,5}")
_LONG_GROUP: Final = re.compile(r"[0-9]{3,5}")


def telephone(line: Line, place: int) -> Said | None:
    core = line.core(place)
    if (_CHAIN.fullmatch(core) or _DOTTED.fullmatch(core)) and not _DATE_LIKE.fullmatch(core):
        groups = re.split("[-.]", core)
        return Said(_said(groups)) if _digits(groups) >= FEWEST_DIALLED else None
    if _LOCAL.fullmatch(core) and "-" in core:
        return Said(_said(core.split("-")))
    if _is_area(line, place) and _LOCAL.fullmatch(line.core(place + 1)):
        return Said(_said([core, *re.split("[-.]", line.core(place + 1))]), 2, opening="")
    if _COUNTRY.fullmatch(core):
        return _international(line, place)
    return _run(line, place)


def _is_area(line: Line, place: int) -> bool:
    word = line[place]
    bracketed = word.opening == "(" and word.closing == ")"
    return bracketed and _AREA.fullmatch(word.core) is not None


def _international(line: Line, place: int) -> Said | None:
    """+44 20 7946 0958, +1 (555) 010-9999"""
    groups, last = [line.core(place)], place
    while len(groups) < MOST_GROUPS:
        core = line.core(last + 1)
        plain = line.adjoins(last) or (_is_area(line, last) and line.continues(last))
        if plain and _GROUP.fullmatch(core):
            groups.append(core)
        elif plain and _LOCAL.fullmatch(core):
            groups += re.split("[-.]", core)
        elif last == place and _is_area(line, last + 1):
            groups.append(core)
        else:
            break
        last += 1
    if not FEWEST_DIALLED <= _digits(groups) <= MOST_DIGITS:
        return None
    return Said(_said(groups), last - place + 1)


def _run(line: Line, place: int) -> Said | None:
    """4242 4242 4242 4242; but 1 000 000 may be a count, and stays."""
    groups, last = [line.core(place)], place
    if not _GROUP.fullmatch(groups[0]):
        return None
    while (
        len(groups) < MOST_GROUPS and line.adjoins(last) and _GROUP.fullmatch(line.core(last + 1))
    ):
        last += 1
        groups.append(line.core(last))
    if "000" in groups[1:] and all(len(each) == 3 for each in groups[1:]):
        return Said(line.written(place, last), last - place + 1)
    long = len(groups) >= 3 and all(map(_LONG_GROUP.fullmatch, groups))
    years = all(map(YEAR.fullmatch, groups))
    spaced = long and _digits(groups) >= FEWEST_SPACED and not years
    if spaced or [len(each) for each in groups] == [3, 4]:
        return Said(_said(groups), last - place + 1)
    return None


def _digits(groups: Iterable[str]) -> int:
    return sum(len(each.lstrip("+")) for each in groups)


def _said(groups: Iterable[str]) -> str:
    said = ", ".join(digit_by_digit(each.lstrip("+")) for each in groups)
    return f"plus {said}" if next(iter(groups)).startswith("+") else said
