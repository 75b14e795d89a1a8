"""Written English as it is spoken: each rule by example, and what holds for any text."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gateway.spoken_en.speller import spoken_en
from gateway.text import MAX_INPUT_CHARACTERS

TIMES = [
    ("at 3:05 pm", "at three oh five p m"),
    ("at 3:05 p.m. Then go.", "at three oh five p m. Then go."),
    ("at 3:05 p.m. and later", "at three oh five p m and later"),
    ("at 3 PM, at 11am", "at three p m, at eleven a m"),
    ("10:30, 10:00, 08:05", "ten thirty, ten o'clock, eight oh five"),
    ("15:00, 23:59, 00:15", "fifteen hundred, twenty-three fifty-nine, zero fifteen"),
    ("0:00 is midnight", "midnight is midnight"),
    ("10:30:15", "ten thirty and fifteen seconds"),
    ("10.30am", "ten thirty a m"),
    ("9am-5pm, 9-5pm", "nine a m to five p m, nine to five p m"),
    ("10:30\u201311:45", "ten thirty to eleven forty-five"),
]
DATES = [
    ("2026-11-30.", "November thirtieth, twenty twenty-six."),
    ("Nov 30", "November thirtieth"),
    ("Nov. 30th, 2026, I", "November thirtieth, twenty twenty-six, I"),
    ("November 2026", "November twenty twenty-six"),
    ("on 30 Nov 2026", "on the thirtieth of November, twenty twenty-six"),
    ("the 1st of May", "the first of May"),
    ("3 Sept. and", "the third of September and"),
    ("11/30/2026", "November thirtieth, twenty twenty-six"),
    ("30/11/2026", "November thirtieth, twenty twenty-six"),
    ("in 1999 and since 2026", "in nineteen ninety-nine and since twenty twenty-six"),
    ("1999-2003", "nineteen ninety-nine to two thousand three"),
    ("the 1990s, his 20s, the 1900s", "the nineteen nineties, his twenties, the nineteen hundreds"),
]
MONEY = [
    ("$1,234.56", "one thousand two hundred thirty-four dollars and fifty-six cents"),
    ("$1 $1.01 $0.99 $5.00", "one dollar one dollar and one cent ninety-nine cents five dollars"),
    ("\u00a33.50, \u00a30.01", "three pounds and fifty pence, one penny"),
    ("\u20ac20 20\u20ac \u00a5500", "twenty euros twenty euros five hundred yen"),
    ("$5k, $1.5M", "five thousand dollars, one point five million dollars"),
    ("$2bn", "two billion dollars"),
    ("$3 million", "three million dollars"),
    ("-$5", "minus five dollars"),
    ("$5-10, $5\u2013$10", "five to ten dollars, five dollars to ten dollars"),
    ("$5/month", "five dollars per month"),
]
AMOUNTS = [
    ("5 kg, 5km, 1 km", "five kilograms, five kilometers, one kilometer"),
    ("20 \u00b0C, 10 %, 3.5%", "twenty degrees Celsius, ten percent, three point five percent"),
    ("5 GB, 2 \u00b5m, 3 kHz", "five gigabytes, two micrometers, three kilohertz"),
    ("100 km/h, 60mph", "one hundred kilometers per hour, sixty miles per hour"),
    ("3-5 km, 5\u201310%", "three to five kilometers, five to ten percent"),
    ("5 lb. bags", "five pounds bags"),
    ("It took 5 min. Then", "It took five minutes. Then"),
    ("a 5-year-old", "a five-year-old"),
    ("-5, \u22125, +5", "minus five, minus five, plus five"),
    ("\u00b15, ~5", "plus or minus five, about five"),
    ("1st, 22nd, 111th, 1,000th", "first, twenty-second, one hundred eleventh, one thousandth"),
    ("\u00bd cup, 2\u00bd cups", "one half cup, two and a half cups"),
    ("2 + 2 = 4, 3 \u00d7 4", "two plus two equals four, three times four"),
    ("Pages 3-5", "Pages three to five"),
]
TELEPHONES = [
    ("555-0123", "five five five, zero one two three"),
    ("555-010-9999", "five five five, zero one zero, nine nine nine nine"),
    ("(555) 010-9999.", "five five five, zero one zero, nine nine nine nine."),
    ("+1 (555) 010-9999", "plus one, five five five, zero one zero, nine nine nine nine"),
    ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
    ("4242 4242 4242", "four two four two, four two four two, four two four two"),
]
ABBREVIATIONS = [
    ("Mr. Smith, Mrs Jones and Dr. No", "Mister Smith, Missus Jones and Doctor No"),
    ("St. James lives in Elm St. there", "Saint James lives in Elm Street there"),
    ("Ask Dr. Smith. Hello, St John", "Ask Doctor Smith. Hello, Saint John"),
    ("12 St. James St.", "twelve Saint James Street."),
    ("12 Elm Dr. by Dr. Elm", "twelve Elm Drive by Doctor Elm"),
    ("cats, e.g. mine, i.e. two", "cats, for example mine, that is two"),
    ("cats, eg. mine, ie. two, or eg", "cats, for example mine, that is two, or eg"),
    ("(e.g., this) etc.", "(for example, this) et cetera."),
    ("a, b, etc. and c", "a, b, et cetera and c"),
    ("cats & dogs, R&D, AT&T", "cats and dogs, R and D, AT and T"),
    ("us vs. them, w/ or w/o, 24/7", "us versus them, with or without, twenty-four seven"),
    ("no. 5, #5, Fig. 3, pp. 3-5", "number five, number five, Figure three, pages three to five"),
    ("Elm Dr. is", "Elm Drive is"),
    ("Acme Inc. said", "Acme Incorporated said"),
]
BY_WHAT_IS_NEAR = [
    ("in the low 60s, the upper 80s.", "in the low sixties, the upper eighties."),
    ("the '90s, the \u201980s, the 60s and", "the 'nineties, the \u2019eighties, the sixties and"),
    ("wait 30s. every 5s, 1.5s", "wait thirty seconds. every five seconds, one point five seconds"),
    ("two 20s and a 10", "two 20s and a ten"),
    ("221B Baker St. London", "221B Baker Street. London"),
    ("The St. James. Call Dr. Smith", "The Saint James. Call Doctor Smith"),
    ("I ate a fig. 2 more", "I ate a fig. two more"),
    ("He said no. 5 people came.", "He said no. five people came."),
    ("I said no. 3 times.", "I said no. three times."),
    ("The answer is no. 42 is not.", "The answer is no. forty-two is not."),
    ("it's no. 3, see fig. 2 there", "it's number three, see figure two there"),
    ("Symphony No. 9 is", "Symphony Number nine is"),
    ("5 m long, $5 m", "five meters long, five million dollars"),
    (
        "In 1999 he, in 1999, In 1999 Ada",
        "In nineteen ninety-nine he, in nineteen ninety-nine, In nineteen ninety-nine Ada",
    ),
    (
        "from 2010 to 2015. from 1999 to now",
        "from twenty ten to twenty fifteen. from nineteen ninety-nine to now",
    ),
    (
        "the 60s and 70s, the low 60s or 70s",
        "the sixties and seventies, the low sixties or seventies",
    ),
    (
        "It's 300, the 300 votes, 3000",
        "It's three hundred, the three hundred votes, three thousand",
    ),
    ("March 10 miles, May 3 people come?", "March ten miles, May three people come?"),
    (
        "March 10 is, March 10, May 5 2026",
        "March tenth is, March tenth, May fifth, twenty twenty-six",
    ),
    ("Tel. 030 1234567", "Tel. zero three zero 1234567"),
    ("1500 votes, 300 came", "one thousand five hundred votes, three hundred came"),
    ("2500-3000 votes", "two thousand five hundred to three thousand votes"),
    ("10,000-15,000", "ten thousand to fifteen thousand"),
    ("$500k-$1M", "five hundred thousand dollars to one million dollars"),
    (
        "48213 m wide, 10,001",
        "forty-eight thousand two hundred thirteen meters wide, ten thousand one",
    ),
]
AS_WRITTEN = [
    "Nothing to do here, is there?",
    "90s, in 30s, size 10s, Type 2s",
    "100s of people, 1000s of users, wait 100s, 1,000s, the 1500s of them",
    "Boeing 747s, model 3-5s, the 30s timer, the 30s and 40s timer, every 90s kid",
    "on Market St Monday, Main St Boston",
    "the Elm Dr Tuesday party, in Elm St. Monday",
    "Gen. Z",
    "ZIP 90210-1234, order 48213-77, part 1234-567, 1234567-1",
    "call 1-800 numbers",
    "50-50, 24-7, a 4-1 win, 20-20, 2-2, 9-5, 9-11, 7-11",
    "05-07, 10-5 km, 2003-1999, part 1234-1567, on 11-30, 1234-5678",
    "2-3-4, a 60-30-10 split",
    "about 5m ago, in 5m, 5 m, 100m, 2m/day, 5g",
    "from 1999 miles, in 2026 people, in 1999 of them, until 1900 hours",
    "from 1999 to 2005 miles, the 101 freeway",
    "Q3 2026, the 1999 elections, year, 1999",
    "Your code is 482913.",
    "PIN 4821, call 911, room 101, Flight 370, code: 482, Boeing 747 is",
    "#48213, +12345, in 2019 2020 2021",
    "03/04/2026, 2026-13-45, 29/02/2026",  # two readings, or none
    "Score 3:2, 10:75, 25:00, 3/4",
    "version 1.2.3, 192.168.0.1",
    "https://example.com/a?b=5, www.example.com/5, me5@example.com",
    "the Wall St. Journal, Wall St Journal",
    "I use IE.",
    "A4, mp3, COVID-19, v2, H2O, Room 5B",
    "1 000 000 of them",
    "12,34 and 1.234,56",
    "2026's best, 5's",
    "(brackets) \u2014 and dashes - too",
    "\u0663 \u4f60\u597d \U0001f600",
    "9" * 49,
]


@pytest.mark.parametrize(
    ("written", "said"),
    [*TIMES, *DATES, *MONEY, *AMOUNTS, *TELEPHONES, *ABBREVIATIONS, *BY_WHAT_IS_NEAR],
    ids=ascii,
)
def test_what_is_recognised_is_said(written: str, said: str) -> None:
    """Times, dates, money, amounts, telephone numbers and abbreviations, where they are clear."""
    assert spoken_en(written) == said


@pytest.mark.parametrize("written", AS_WRITTEN, ids=ascii)
def test_what_is_not_recognised_stays_as_it_was(written: str) -> None:
    """What has two readings, or none that is known, is left to the model."""
    assert spoken_en(written) == written


def test_a_number_that_no_rule_claims_is_a_count() -> None:
    """Also one of four digits before what it counts, and after a sentence of the word No."""
    assert spoken_en("2026 people") == "two thousand twenty-six people"
    assert spoken_en("in 2026 km") == "in two thousand twenty-six kilometers"
    assert spoken_en("Any left? No. 5 went.") == "Any left? No. five went."


def test_white_space_and_punctuation_are_kept() -> None:
    """What is around the words is the caller's."""
    assert (
        spoken_en("\t\u201c5\u201d,\r\n  (6)!  *7*\n")
        == "\t\u201cfive\u201d,\r\n  (six)!  *seven*\n"
    )


EXAMPLES = [*TIMES, *DATES, *MONEY, *AMOUNTS, *TELEPHONES, *ABBREVIATIONS, *BY_WHAT_IS_NEAR]
WRITTEN = [*AS_WRITTEN, *(written for written, _ in EXAMPLES)]
PIECES = sorted({word for written in WRITTEN for word in written.split()})
NOISE = st.text("0123456789.,:;-/$%'\"()#&+ \nAamMpkst", max_size=8)
SOUP = st.lists(st.sampled_from(PIECES) | NOISE, max_size=12).map(" ".join)


@hypothesis_settings(max_examples=500, deadline=None)
@given(SOUP | st.text(max_size=60))
@example("Dr. 2026-11-30")
@example("1 1")
def test_what_was_said_once_is_said_the_same_again(text: str) -> None:
    """The spoken form of any text is its own spoken form; ends and length stay within bounds."""
    said = spoken_en(text)

    assert spoken_en(said) == said
    assert len(said) <= 16 * len(text) + 16
    assert bool(said.strip()) == bool(text.strip())


HOSTILE = [
    *("1", "1 ", "1:", "1,", "1-", "1.", "$1 ", "\u00bd ", "Dr. ", "12 Elm Elm Elm Dr. ", "+1 2 "),
    *("1 000 ", "555 ", "(555) ", "Nov ", "11:11:11pm ", "a&", ". ", "'", " ", "-", "e.g. ", "0"),
    *("1,000,", "\n", "No. ", "1\u20131 ", "#1 ", "1st "),
]


@pytest.mark.parametrize("piece", HOSTILE, ids=ascii)
def test_hostile_text_costs_no_more_than_its_length(piece: str) -> None:
    """The most characters that a request may have, chosen to make a pattern try again and again."""
    text = (piece * MAX_INPUT_CHARACTERS)[:MAX_INPUT_CHARACTERS]
    began = time.process_time()

    spoken_en(text + "x")

    assert time.process_time() - began < 2.0
