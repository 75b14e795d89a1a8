"""Times of day."""

from __future__ import annotations

import re
from typing import Final

from gateway.spoken_en.numbers import cardinal, two_digits
from gateway.spoken_en.words import Line, Said

HALVES: Final = {
    "am": "a m",
    "AM": "a m",
    "a.m": "a m",
    "A.M": "a m",
    "pm": "p m",
    "PM": "p m",
    "p.m": "p m",
    "P.M": "p m",
}
_HALF: Final = r"(am|AM|pm|PM|a\.m|A\.M|p\.m|P\.M)"
_CLOCK: Final = re.compile(rf"([0-9]{{1,2}}):([0-9]{{2}})(?::([0-9]{{2}}))?{_HALF}?")
_DOTTED_CLOCK: Final = re.compile(rf"([0-9]{{1,2}})\.([0-9]{{2}}){_HALF}")
_HOUR: Final = re.compile(rf"([0-9]{{1,2}}){_HALF}")
_BARE_HOUR: Final = re.compile(r"[0-9]{1,2}")
_TIMES: Final = re.compile(r"([^-\u2013]{1,12})[-\u2013]([^-\u2013]{1,12})")


def time_of_day(line: Line, place: int) -> Said | None:
    """A time, or two with a dash between them; the half of the day may be the next word."""
    core = line.core(place)
    between = _TIMES.fullmatch(core)
    begin = ""
    if between is not None:
        first = between[1]
        start = _time(first) or (cardinal(int(first)) if _is_hour(first) else None)
        if start is None or (":" not in core and _HOUR.fullmatch(between[2]) is None):
            return None
        begin, core = f"{start} to ", between[2]
    half = HALVES.get(line.core(place + 1)) if line.adjoins(place) else None
    said = _time(core, half)
    if said is not None:
        used = 2 if half and said.endswith(half) and not core.endswith(tuple(HALVES)) else 1
        last = place + used - 1
        closing = line.undotted(last) if "." in _half_in(line.core(last)) else None
        return Said(begin + said, used, closing)
    return None


def _is_hour(written: str) -> bool:
    return _BARE_HOUR.fullmatch(written) is not None and 1 <= int(written) <= 12


def _half_in(core: str) -> str:
    return next((half for half in HALVES if core.endswith(half)), "")


def _time(core: str, half_after: str | None = None) -> str | None:
    """A time in words; a bare hour only with the half of the day after it."""
    if found := _CLOCK.fullmatch(core):
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        return _clock(hour, minute, second, HALVES.get(found[4] or "") or half_after)
    if found := _DOTTED_CLOCK.fullmatch(core):
        return _clock(int(found[1]), int(found[2]), 0, HALVES[found[3]])
    if found := _HOUR.fullmatch(core):
        return _clock(int(found[1]), 0, 0, HALVES[found[2]])
    if half_after and _is_hour(core):
        return _clock(int(core), 0, 0, half_after)
    return None


def _clock(hour: int, minute: int, second: int, half: str | None) -> str | None:
    if hour > 23 or minute > 59 or second > 59:
        return None
    if half and not 1 <= hour <= 12:
        return None
    if minute:
        words = f"{cardinal(hour)} {two_digits(minute)}"
    elif half:
        words = cardinal(hour)
    elif hour == 0:
        words = "midnight"
    else:
        words = f"{cardinal(hour)} o'clock" if hour <= 12 else f"{cardinal(hour)} hundred"
    if second:
        words += f" and {cardinal(second)} second{'' if second == 1 else 's'}"
    return f"{words} {half}" if half else words
