"""Numbers in words, held to those of a library that others keep."""

from __future__ import annotations

import inflect
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.spoken_en.numbers import LIMIT, cardinal, number_words, ordinal, year

ENGINE = inflect.engine()
NUMBERS = st.one_of(st.integers(0, 2000), st.integers(0, LIMIT - 1))


def by_library(number: int) -> str:
    return str(ENGINE.number_to_words(str(number), andword="", comma=""))


def test_small_cardinals_and_ordinals_are_the_library_s() -> None:
    """All of 0 to 1200: every irregular word, and the joints between tens, hundreds, thousands."""
    numbers = range(1201)

    assert [cardinal(n) for n in numbers] == [by_library(n) for n in numbers]
    assert [ordinal(n) for n in numbers] == [str(ENGINE.ordinal(by_library(n))) for n in numbers]


@given(NUMBERS)
def test_any_cardinal_and_ordinal_is_the_library_s(number: int) -> None:
    """Up to the last number that is read as one."""
    assert cardinal(number) == by_library(number)
    assert ordinal(number) == ENGINE.ordinal(by_library(number))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1100, "eleven hundred"),
        (1900, "nineteen hundred"),
        (1905, "nineteen oh five"),
        (1999, "nineteen ninety-nine"),
        (2000, "two thousand"),
        (2009, "two thousand nine"),
        (2010, "twenty ten"),
        (2026, "twenty twenty-six"),
        (2099, "twenty ninety-nine"),
    ],
)
def test_a_year_is_said_by_its_hundreds(number: int, words: str) -> None:
    """But for the first ten years of a millennium."""
    assert year(number) == words


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("0", "zero"),
        ("1,234", "one thousand two hundred thirty-four"),
        ("999,999,999,999,999", by_library(LIMIT - 1)),
        ("3.14", "three point one four"),
        ("0.50", "zero point five zero"),
        ("1,000.5", "one thousand point five"),
        ("007", "zero zero seven"),
        ("123456789", by_library(123_456_789)),
        ("1234567890", "one two three four five six seven eight nine zero"),
        ("12,34", None),
        ("1,2345", None),
        ("1.", None),
        ("1.2.3", None),
        ("\u0663", None),
        ("", None),
    ],
)
def test_a_written_number_in_words(written: str, words: str | None) -> None:
    """Grouped by thousands or not at all; what counts nothing goes digit by digit."""
    assert number_words(written) == words
