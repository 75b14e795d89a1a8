"""Written numbers in words, as Americans say them: no "and", no commas.

Tests hold cardinals and ordinals to those of the ``inflect`` library.
"""

from __future__ import annotations

import re
from typing import Final

NUMBER: Final = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,15})?"
"""A number as it is written, without a sign. Its parts are bounded, so matching one is, too."""

_NUMBER: Final = re.compile(NUMBER)
_CARDINAL_DIGITS: Final = 9
"""Longer digits without separators are somebody's number, not a count: said one by one."""

UNITS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
)
TENS: Final = (
    *("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
)
SCALES: Final = ("", " thousand", " million", " billion", " trillion")
LIMIT: Final = 1000 ** len(SCALES)
_IRREGULAR: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(number: int) -> str:
    """``number`` from 0 to below ``LIMIT``."""
    parts: list[str] = []
    for scale in SCALES:
        number, group = divmod(number, 1000)
        if group or (not parts and not number):
            parts.insert(0, _below_thousand(group) + scale)
        if not number:
            break
    return " ".join(parts)


def ordinal(number: int) -> str:
    """``number`` from 0 to below ``LIMIT``."""
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in _IRREGULAR:
        return words[:start] + _IRREGULAR[last]
    return words[:-1] + "ieth" if last.endswith("y") else words + "th"


def year(number: int) -> str:
    """A year from 1100 to 2099, by its hundreds where people say it so."""
    century, rest = divmod(number, 100)
    if century == 20 and rest < 10:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(number: int) -> str:
    """As minutes and years say them: a zero in front is "oh"."""
    return f"oh {UNITS[number]}" if number < 10 else cardinal(number)


def digit_by_digit(written: str) -> str:
    return " ".join(UNITS[int(digit)] for digit in written)


def number_words(written: str) -> str | None:
    """What ``NUMBER`` matches, in words; None for anything else."""
    if _NUMBER.fullmatch(written) is None:
        return None
    whole, point, fraction = written.partition(".")
    digits = whole.replace(",", "")
    counted = "," in whole or len(digits) <= _CARDINAL_DIGITS
    if digits.startswith("0") and len(digits) > 1:
        counted = False
    words = cardinal(int(digits)) if counted else digit_by_digit(digits)
    return f"{words} point {digit_by_digit(fraction)}" if point else words


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{UNITS[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, unit = divmod(rest, 10)
        words.append(TENS[tens] + (f"-{UNITS[unit]}" if unit else ""))
    elif rest or not hundreds:
        words.append(UNITS[rest])
    return " ".join(words)
