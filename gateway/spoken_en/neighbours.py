"""What the words beside a number say of it: whether it counts, or is somebody's name or year."""

from __future__ import annotations

from typing import Final

from gateway.spoken_en.words import Line

_FUNCTION_WORDS: Final = """
    a an the this that these those my your his her its our their some any all both each no i
    you he she it we they me him them us who which what there here and or but nor so yet if
    when while because although though as than then until till since unless whether where how
    why at by for from in into of off on onto out over per plus minus times to toward towards
    under up upon via with within without about above across after against along around before
    behind below between beyond down during except inside near outside past through versus is
    am are was were be been being has have had does do did will would shall should can could
    may might must again also always already even ever just maybe never not now often only
    alone nearly perhaps please still too today tomorrow yesterday yes
"""
FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
"""No number counts these, and a capital of theirs makes no name."""
_NAMED_BY_NUMBER: Final = """
    account apartment apt area bus call called calling case channel code codes dial dialed dialing
    ext extension fax flight gate highway id interstate invoice model number order part
    passcode password phone pin room route serial suite tel text ticket train unit zip
"""
NAMED_BY_NUMBER: Final = frozenset(_NAMED_BY_NUMBER.split())
"""What comes after them is read in as many ways as there are things: "flight 370", "call 911"."""
DETERMINERS: Final = frozenset(
    ("the", "a", "an", "this", "that", "his", "her", "their", "my", "your", "our")
)
WAITING: Final = frozenset(
    ("wait", "waits", "waited", "waiting", "lasts", "lasted", "every", "within")
)
MEASURED: Final = frozenset(("long", "wide", "tall", "high", "deep", "thick", "above", "below"))
PLURALS: Final = frozenset(("people", "men", "women", "children", "percent"))
NOT_COUNTED: Final = frozenset(("hours",))
""""At 1900 hours" is a time."""


def ends_phrase(line: Line, place: int) -> bool:
    """Whether what follows is nothing that the number may count or go with: "in 1999 he"."""
    after = line.core(place + 1)
    return not line.adjoins(place) or after.lower() in FUNCTION_WORDS or after[:1].isupper()


def counts(line: Line, place: int) -> bool:
    """Whether a word of several follows: "1500 votes"."""
    after = line.core(place + 1)
    if not line.adjoins(place) or not (after.isalpha() and after.islower()):
        return False
    several = len(after) > 2 and after.endswith("s") and not after.endswith("ss")
    return after in PLURALS or (several and after not in FUNCTION_WORDS | NOT_COUNTED)


def names(line: Line, place: int) -> bool:
    """Whether it is the number of a thing: "room 101"."""
    return line.continues(place - 1) and line.core(place - 1).lower() in NAMED_BY_NUMBER


def follows_name(line: Line, place: int) -> bool:
    """Whether a capitalised word is before it, as in "Boeing 747"."""
    plain = before(line, place).partition("'")[0] in FUNCTION_WORDS
    return line.adjoins(place - 1) and line.is_name(place - 1) and not plain


def before(line: Line, place: int) -> str:
    """The word before, in small letters, where nothing but white space is between."""
    return line.core(place - 1).lower() if line.adjoins(place - 1) else ""


def is_count(line: Line, place: int, digits: str) -> bool:
    """Whether bare ``digits``, without separators, are a count rather than a year or a code."""
    if len(digits) < 3:
        return True
    if names(line, place) or follows_name(line, place):
        return False
    if len(digits) == 3 or (len(digits) == 4 and digits.endswith("000")):
        return before(line, place) not in DETERMINERS or counts(line, place)
    return len(digits) == 4 and before(line, place) not in DETERMINERS and counts(line, place)


def is_plural(line: Line, place: int, digits: str) -> bool:
    """Whether ``digits`` with an s are, or may be, several of a number: "747s", but "wait 5s"."""
    number = int(digits.replace(",", ""))
    if before(line, place) not in WAITING or number >= 100:
        return True
    return number % 10 == 0 and line.adjoins(place)
