"""Dates, years and decades."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date
from typing import Final

from gateway.spoken_en import neighbours
from gateway.spoken_en.numbers import TENS, ordinal, year
from gateway.spoken_en.units import SPACED
from gateway.spoken_en.words import Line, Said

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
MONTH_NUMBERS: Final = {
    **{name: number for number, name in enumerate(MONTHS, 1)},
    **{name[:3]: number for number, name in enumerate(MONTHS, 1)},
    "Sept": 9,
}
LEAP_YEAR: Final = 2000
BEFORE_YEARS: Final = frozenset(
    (
        "in",
        "since",
        "by",
        "until",
        "till",
        "circa",
        "year",
        "after",
        "before",
        "during",
        "from",
        "between",
    )
)
BEFORE_TENS: Final = frozenset(("early", "mid", "late", "low", "lower", "high", "upper"))
BEFORE_PAIRS: Final = frozenset(("from", "between"))
JOINING: Final = frozenset(("to", "and", "or", "until", "through"))
ALSO_WORDS: Final = ("May", "March")
APOSTROPHES: Final = ("'", "\u2018")

YEAR: Final = re.compile(r"(?:1[1-9]|20)[0-9]{2}")
"""A year as it is written."""

_ISO: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_SLASHES: Final = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})")
_DAY: Final = re.compile(r"([0-9]{1,2})(st|nd|rd|th)?")
_YEARS: Final = re.compile(rf"({YEAR.pattern})[-\u2013]({YEAR.pattern})")
_DECADE: Final = re.compile(r"(\u2019?)((?:(?:1[1-9]|20)[0-9]|[2-9])0)s")


def day(line: Line, place: int) -> Said | None:
    """A date: 2026-11-30, 11/30/2026 where only one reading is one, Nov 30, 30 Nov 2026."""
    core = line.core(place)
    if found := _ISO.fullmatch(core):
        return _date(int(found[1]), int(found[2]), int(found[3]))
    if found := _SLASHES.fullmatch(core):
        one, two, year_ = int(found[1]), int(found[2]), int(found[3])
        if one <= 12 and two <= 12 and one != two:
            return None  # the order of day and month is anybody's guess
        return _date(year_, *((one, two) if one <= 12 else (two, one)))
    if core in MONTH_NUMBERS:
        return _month_first(line, place)
    return _day_first(line, place)


def year_alone(line: Line, place: int) -> Said | None:
    """A year after a word that dates, two years with a dash between them, a decade."""
    core = line.core(place)
    if found := _YEARS.fullmatch(core):
        rises = found[1] < found[2] and not neighbours.names(line, place)
        return Said(f"{year(int(found[1]))} to {year(int(found[2]))}") if rises else None
    if YEAR.fullmatch(core) and (_is_after(line, place, BEFORE_YEARS) or _joins(line, place)):
        return _dated(line, place)
    return _decade(line, place)


def _is_after(line: Line, place: int, words: frozenset[str]) -> bool:
    return neighbours.before(line, place) in words


def _joins(line: Line, place: int) -> bool:
    """Whether it is the second year of "from 1999 to 2003"."""
    first = YEAR.fullmatch(line.core(place - 2)) and line.adjoins(place - 2)
    joined = first and _is_after(line, place, JOINING)
    return bool(joined) and _is_after(line, place - 2, BEFORE_YEARS)


def _dated(line: Line, place: int) -> Said | None:
    """In 1999, from 1999 to 2003; but "in 2026 people" may be a count, and stays."""
    last = _last_of_years(line, place)
    after = line.core(last + 1) if line.adjoins(last) else ""
    if after in SPACED:
        return None
    clear = neighbours.ends_phrase(line, last) and after != "of"
    return Said(year(int(line.core(place))) if clear else line.core(place))


def _last_of_years(line: Line, place: int) -> int:
    """The place of the second of two years, of the first one where there is only one."""
    paired = _is_after(line, place, BEFORE_PAIRS) and line.core(place + 1) in JOINING
    if not (paired and line.adjoins(place)) or neighbours.ends_phrase(line, place + 1):
        return place
    return place + 2 if YEAR.fullmatch(line.core(place + 2)) else place + 1


def _decade(line: Line, place: int) -> Said | None:
    """The 1990s, '90s, her 20s, the low 60s; but not "the 30s timer"."""
    found = _DECADE.fullmatch(line.core(place))
    if found is None or (line.adjoins(place) and line.core(place + 1) == "of"):
        return None
    number = int(found[2])
    if number >= 100 or _is_of_tens(line, place):
        return Said(found[1] + _plural(year(number) if number >= 100 else TENS[number // 10]))
    return None


def _is_of_tens(line: Line, place: int) -> bool:
    """Whether 20s are twenties: years, ages or degrees, not seconds."""
    if line.core(place)[0] == "\u2019" or line[place].opening[-1:] in APOSTROPHES:
        return True
    first = last = place
    if _is_after(line, place, JOINING) and _DECADE.fullmatch(line.core(place - 2)):
        first = place - 2
    if line.core(place + 1) in JOINING and _DECADE.fullmatch(line.core(place + 2)):
        last = place + 2
    if _is_after(line, first, BEFORE_TENS):
        return True
    return neighbours.ends_phrase(line, last) and _is_after(line, first, neighbours.DETERMINERS)


def _plural(words: str) -> str:
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def _date(year_: int, month: int, day_: int) -> Said | None:
    try:
        date(year_, month, day_)
    except ValueError:
        return None
    if not YEAR.fullmatch(str(year_)):
        return None
    return Said(f"{MONTHS[month - 1]} {ordinal(day_)}, {year(year_)}")


def _day_of(written: str, month: int) -> int | None:
    """A day that this month may have, written without or with its own ending."""
    found = _DAY.fullmatch(written)
    number = int(found[1]) if found else 0
    if found is None or not 1 <= number <= monthrange(LEAP_YEAR, month)[1]:
        return None
    return number if found[2] is None or ordinal(number).endswith(found[2]) else None


def _year_at(line: Line, place: int) -> int | None:
    return int(line.core(place)) if YEAR.fullmatch(line.core(place)) else None


def _month_first(line: Line, place: int) -> Said | None:
    """Nov 30, Nov. 30th, November 30, 2026, November 2026."""
    if line[place].closing not in ("", ".") or not line.continues(place):
        return None
    month = MONTH_NUMBERS[line.core(place)]
    name = MONTHS[month - 1]
    number = _day_of(line.core(place + 1), month)
    alone = neighbours.ends_phrase(line, place + 1) and line.core(place + 2) not in SPACED
    if name in ALSO_WORDS and not alone and _year_at(line, place + 2) is None:
        return None  # "March 10 miles", "May 3 people come?"
    if number is None:
        year_ = _year_at(line, place + 1)
        return None if year_ is None else Said(f"{name} {year(year_)}", 2)
    said = f"{name} {ordinal(number)}"
    year_ = _year_at(line, place + 2)
    if year_ is None or line[place + 1].closing not in ("", ",") or not line.continues(place + 1):
        return Said(said, 2)
    return Said(f"{said}, {year(year_)}", 3)


def _day_first(line: Line, place: int) -> Said | None:
    """30 Nov, 30th November 2026, 30th of November."""
    if not line.adjoins(place):
        return None
    used = 2 if line.core(place + 1) != "of" else 3
    if used == 3 and (not line.adjoins(place + 1) or not line.core(place)[-1:].isalpha()):
        return None
    last = place + used - 1
    month = MONTH_NUMBERS.get(line.core(last))
    number = None if month is None else _day_of(line.core(place), month)
    if month is None or number is None:
        return None
    the = "" if line.core(place - 1).lower() == "the" else "the "
    said = f"{the}{ordinal(number)} of {MONTHS[month - 1]}"
    year_ = _year_at(line, last + 1)
    if year_ is not None and line[last].closing in ("", ".", ",") and line.continues(last):
        return Said(f"{said}, {year(year_)}", used + 1)
    shortened = line.core(last) not in MONTHS
    return Said(said, used, line.undotted(last) if shortened else None)
