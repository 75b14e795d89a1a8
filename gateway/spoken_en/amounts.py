"""Counts, money, units and percentages, also from one to another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from unicodedata import numeric

from gateway.spoken_en import neighbours, ranges
from gateway.spoken_en.numbers import NUMBER, cardinal, number_words
from gateway.spoken_en.units import ATTACHED, ONLY_ATTACHED, SPACED, WITH_A_DOT
from gateway.spoken_en.words import Line, Said

SIGNS: Final = {
    "-": "minus ",
    "\u2212": "minus ",
    "+": "plus ",
    "\u00b1": "plus or minus ",
    "~": "about ",
}
CURRENCIES: Final = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "\u20ac": ("euro", "euros", "cent", "cents"),
    "\u00a3": ("pound", "pounds", "penny", "pence"),
    "\u00a5": ("yen", "yen", "", ""),
    "\u20b9": ("rupee", "rupees", "paisa", "paise"),
}
CURRENCY_UNITS: Final = tuple((each[0], each[1]) for each in CURRENCIES.values())
SCALES: Final = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "bn": "billion",
    "B": "billion",
    "tn": "trillion",
    "T": "trillion",
}
SCALE_WORDS: Final = ("thousand", "million", "billion", "trillion")
SCALES_OF_MONEY: Final = ("m", "M", "bn", "tn")
"""Those that may stand apart: "$5 m"."""
PER: Final = {
    **{
        word: word
        for word in (
            *("second", "minute", "hour", "day", "night", "week", "month", "quarter", "year"),
            *("person", "user", "seat", "mile"),
        )
    },
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "mo": "month",
    "yr": "year",
    "kg": "kilogram",
    "lb": "pound",
    "km": "kilometer",
    "mi": "mile",
    "GB": "gigabyte",
    "kWh": "kilowatt hour",
}
FRACTIONS: Final = {
    "\u00bd": ("one half", "a half"),
    "\u00bc": ("one quarter", "a quarter"),
    "\u00be": ("three quarters", "three quarters"),
    "\u2153": ("one third", "a third"),
    "\u2154": ("two thirds", "two thirds"),
    "\u215b": ("one eighth", "an eighth"),
}

_SIGN: Final = re.compile(f"[{re.escape(''.join(SIGNS))}]")
_MONEY: Final = re.compile(rf"([{''.join(CURRENCIES)}])({NUMBER})(k|K|m|M|bn|B|tn|T)?")
_MONEY_BEHIND: Final = re.compile(rf"({NUMBER})([{''.join(CURRENCIES)}])")
_MEASURE: Final = re.compile(rf"({NUMBER})([^0-9.,]{{1,4}})?")
_FRACTION: Final = re.compile(rf"([0-9]{{1,6}})?([{''.join(FRACTIONS)}])")
_COMPOUND: Final = re.compile(
    r"([1-9][0-9]{0,2}|[0-9]{1,3}(?:,[0-9]{3}){1,3})((?:-[a-z]{1,20}){1,3})"
)
_BARE: Final = re.compile(r"\+?([1-9][0-9]{0,8})")
_ENDING: Final = re.compile(r"(?:.{0,20}[^0-9.,])?([0-9]{1,3}(?:,?[0-9]{3}){0,4})s")
_METERS_OR_MORE: Final = re.compile(r".{0,30}[0-9]m|[2-6]g")
"""Also millions and minutes, and generations of telephones."""


@dataclass(frozen=True, slots=True)
class Amount:
    """``number`` in words; ``unit`` is singular and plural, or None for a bare count."""

    sign: str
    number: str
    value: float
    unit: tuple[str, str] | None = None
    is_one: bool = False

    def __str__(self) -> str:
        unit = f" {self.unit[0 if self.is_one else 1]}" if self.unit else ""
        return f"{self.sign}{self.number}{unit}"


def amount(line: Line, place: int) -> Said | None:
    """The amount that begins at a word, with the unit that may be the next."""
    core = line.core(place)
    compound = _COMPOUND.fullmatch(core)
    if compound is not None:
        return Said(f"{number_words(compound[1])}{compound[2]}")
    if _is_unsure(line, place, core):
        return None
    first, _, rate = core.partition("/")
    if rate in PER and (said := _amounts(first)) is not None:
        return Said(f"{said[0]}{said[1]} per {PER[rate]}")
    said = _amounts(core)
    return None if said is None else _with_next(line, place, *said)


def _is_unsure(line: Line, place: int, core: str) -> bool:
    """Whether the letter behind it has another reading here: "747s", "5m"."""
    if plural := _ENDING.fullmatch(core):
        return neighbours.is_plural(line, place, plural[1])
    if _METERS_OR_MORE.fullmatch(core.partition("/")[0]) is None or core[0] in CURRENCIES:
        return False
    return not (line.adjoins(place) and line.core(place + 1) in neighbours.MEASURED)


def _amounts(core: str) -> tuple[str, Amount] | None:
    """An amount, or the beginning of a range and the amount that ends it."""
    whole = _signed(core)
    if whole is not None:
        return "", whole
    between = ranges.ends(core)
    if between is None:
        return None
    start, end = _single(between[0], ""), _single(between[1], "")
    if start is None or end is None or not _is_range(*between, start, end):
        return None
    if start.unit in CURRENCY_UNITS and end.unit is None:
        return f"{start.number} to ", Amount("", end.number, end.value, start.unit)
    return f"{start} to ", end


def _is_range(first: str, second: str, start: Amount, end: Amount) -> bool:
    """Not a score, a code, a year and its month, or two amounts of different things: it rises."""
    if start.value >= end.value:
        return False
    if start.unit is not None:
        return end.unit in (start.unit, None)
    return ranges.is_short(first) and (end.unit is not None or ranges.is_short(second))


def _signed(core: str) -> Amount | None:
    if _SIGN.match(core):
        return _single(core[1:], SIGNS[core[0]])
    return _single(core, "")


def _single(core: str, sign: str) -> Amount | None:
    if money := _MONEY.fullmatch(core):
        return _money(sign, money[1], money[2], money[3])
    if money := _MONEY_BEHIND.fullmatch(core):
        return _money(sign, money[2], money[1], None)
    if fraction := _FRACTION.fullmatch(core):
        alone, added = FRACTIONS[fraction[2]]
        words = f"{number_words(fraction[1])} and {added}" if fraction[1] else alone
        return Amount(sign, words, int(fraction[1] or 0) + numeric(fraction[2]))
    measure = _MEASURE.fullmatch(core)
    if measure is None or (measure[2] and measure[2] not in ATTACHED):
        return None
    words = number_words(measure[1]) or ""
    unit = ATTACHED[measure[2]] if measure[2] else None
    return Amount(sign, words, _value(measure[1]), unit, measure[1] == "1")


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _money(sign: str, symbol: str, number: str, scale: str | None) -> Amount:
    major, majors, minor, minors = CURRENCIES[symbol]
    words, value, unit = number_words(number) or "", _value(number), (major, majors)
    if scale:
        scaled = value * 1000 ** (SCALE_WORDS.index(SCALES[scale]) + 1)
        return Amount(sign, f"{words} {SCALES[scale]}", scaled, unit)
    whole, _, fraction = number.partition(".")
    if len(fraction) != 2 or not minor:
        return Amount(sign, words, value, unit, number == "1")
    units, parts = int(whole.replace(",", "")), int(fraction)
    if not parts:
        return Amount(sign, number_words(whole) or "", value, unit, units == 1)
    said_minor = f"{cardinal(parts)} {minor if parts == 1 else minors}"
    if not units:
        return Amount(sign, said_minor, value)
    said_major = f"{number_words(whole)} {major if units == 1 else majors}"
    return Amount(sign, f"{said_major} and {said_minor}", value)


def _with_next(line: Line, place: int, before: str, found: Amount) -> Said | None:
    """The amount with the scale or the unit that the next word is."""
    after = line.core(place + 1) if line.adjoins(place) else ""
    if found.unit in CURRENCY_UNITS and (after in SCALE_WORDS or after in SCALES_OF_MONEY):
        scaled = f"{found.number} {SCALES.get(after, after)}"
        return Said(f"{before}{Amount(found.sign, scaled, 0, found.unit)}", 2)
    if found.unit is not None:
        return Said(f"{before}{found}")
    dotted = line[place + 1].closing.startswith(".")
    unit = SPACED.get(after)
    if after == "in" and dotted and line[place + 2].core[:1].islower():
        unit = ONLY_ATTACHED["in"]
    if unit is None:
        return Said(f"{before}{found}") if _is_bare_count(line, place) else None
    if after == "m" and _is_unsure(line, place + 1, "0m"):
        return None
    measured = Amount(found.sign, found.number, found.value, unit, found.is_one)
    closing = line.undotted(place + 1) if dotted and after in WITH_A_DOT else None
    return Said(f"{before}{measured}", 2, closing)


def _is_bare_count(line: Line, place: int) -> bool:
    """Whether digits without a unit are a count, or the two ends of a range of counts."""
    core = line.core(place)
    if line.adjoins(place) and line.core(place + 1) in SCALE_WORDS:
        return True
    if bare := _BARE.fullmatch(core):
        return neighbours.is_count(line, place, bare[1])
    if _signed(core) is not None:
        return True
    dated = neighbours.before(line, place) == "on"
    long = ranges.is_long(core) and not neighbours.counts(line, place)
    return not (neighbours.names(line, place) or dated or long)
