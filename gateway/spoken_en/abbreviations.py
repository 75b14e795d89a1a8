"""Abbreviations and signs that stand for a word, where what is around them says which."""

from __future__ import annotations

import re
from typing import Final

from gateway.spoken_en import neighbours
from gateway.spoken_en.words import Line, Said

BEFORE_NAMES: Final = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Dr": "Doctor",
    "Prof": "Professor",
    "St": "Saint",
}
"""With or without a full stop."""
BEFORE_NAMES_DOTTED: Final = {
    "Rev": "Reverend",
    "Gen": "General",
    "Sgt": "Sergeant",
    "Capt": "Captain",
    "Lt": "Lieutenant",
    "Col": "Colonel",
    "Gov": "Governor",
    "Sen": "Senator",
    "Rep": "Representative",
    "Hon": "Honorable",
    "Mt": "Mount",
    "Ft": "Fort",
}
AFTER_NAMES: Final = {
    "St": "Street",
    "Dr": "Drive",
    "Ave": "Avenue",
    "Rd": "Road",
    "Blvd": "Boulevard",
    "Ln": "Lane",
    "Jr": "Junior",
    "Sr": "Senior",
    "Inc": "Incorporated",
    "Ltd": "Limited",
    "Corp": "Corporation",
    "Co": "Company",
}
ANYWHERE: Final = {
    "e.g": "for example",
    "i.e": "that is",
    "eg": "for example",
    "ie": "that is",
    "a.k.a": "also known as",
    "etc": "et cetera",
    "vs": "versus",
    "approx": "approximately",
    "dept": "department",
    "incl": "including",
}
WITHOUT_DOT: Final = {"vs": "versus", "w/": "with", "w/o": "without", "24/7": "twenty-four seven"}
BEFORE_NUMBERS: Final = {
    "no": "number",
    "fig": "figure",
    "vol": "volume",
    "ch": "chapter",
    "p": "page",
    "pp": "pages",
}
BETWEEN_NUMBERS: Final = {
    "+": "plus",
    "=": "equals",
    "\u00d7": "times",
    "\u00f7": "divided by",
}
SHORT_FORMS: Final = frozenset(
    name.lower()
    for table in (
        BEFORE_NAMES,
        BEFORE_NAMES_DOTTED,
        AFTER_NAMES,
        ANYWHERE,
        WITHOUT_DOT,
        BEFORE_NUMBERS,
    )
    for name in table
)
"""Everything that may be an abbreviation, in small letters."""

_LETTERS_AND_LETTERS: Final = re.compile(r"([A-Za-z]{1,15})&([A-Za-z]{1,15})")
_NUMERIC: Final = re.compile(r"[0-9][0-9.,\-\u2013]{0,20}")
_HOUSE: Final = re.compile(r"[0-9]{1,5}[A-Za-z]?")
_ADDRESS_WORDS: Final = 3
_ALSO_WORDS: Final = ("no", "fig")
_REFERRING: Final = frozenset(("see", "in", "at", "of", "house", "platform", "track", "symphony"))


def abbreviation(line: Line, place: int) -> Said | None:
    core, dotted = line.core(place), line[place].closing.startswith(".")
    if core in ("&", "@") and line.continues(place) and place:
        return Said("and" if core == "&" else "at")
    if both := _LETTERS_AND_LETTERS.fullmatch(core):
        return Said(f"{both[1]} and {both[2]}")
    if core in WITHOUT_DOT and not dotted:
        return Said(WITHOUT_DOT[core])
    if dotted and (said := ANYWHERE.get(core[:1].lower() + core[1:])):
        return Said(_cased(core, said), closing=line.undotted(place))
    return _near_name(line, place) or _near_number(line, place)


def _near_name(line: Line, place: int) -> Said | None:
    """A title before a name, or what comes after one; a street where a house number says so."""
    core, closing = line.core(place), line[place].closing
    dotted = closing.startswith(".")
    title = BEFORE_NAMES.get(core) or _title(line, place)
    named = closing in ("", ".") and line.continues(place) and line.is_capital(place + 1)
    in_address = core in AFTER_NAMES and _is_in_address(line, place)
    if title and named and not in_address:
        return None if _may_be_street(line, place) else Said(title, closing="")
    if dotted and core in AFTER_NAMES and line.is_name(place - 1) and not _is_apart(line, place):
        return Said(AFTER_NAMES[core], closing=line.undotted(place))
    return None


def _title(line: Line, place: int) -> str | None:
    """One that needs its full stop, and a name: "Gen. Z" has none."""
    if not line[place].closing.startswith(".") or len(line.core(place + 1)) < 2:
        return None
    return BEFORE_NAMES_DOTTED.get(line.core(place))


def _may_be_street(line: Line, place: int) -> bool:
    """Whether a name goes before: "on Market St Monday"; but "Ask Dr. Smith"."""
    if line.core(place) not in AFTER_NAMES or not neighbours.follows_name(line, place):
        return False
    begins = place == 1 or line[place - 2].closing[-1:] in (".", "!", "?")
    return not (begins and line.core(place) == "Dr" and line[place].closing)


def _is_apart(line: Line, place: int) -> bool:
    return line[place - 1].closing not in ("", ",") or not line.continues(place - 1)


def _is_in_address(line: Line, place: int) -> bool:
    """Whether a house number and a name go before: "12 Elm Dr. Springfield"."""
    for before in range(place - 1, max(-1, place - 2 - _ADDRESS_WORDS), -1):
        if not line.adjoins(before):
            return False
        if _HOUSE.fullmatch(line.core(before)):
            return before < place - 1
        if not line.is_name(before):
            return False
    return False


def _near_number(line: Line, place: int) -> Said | None:
    word = line[place]
    if word.core in BETWEEN_NUMBERS:
        around = line.core(place - 1), line.core(place + 1)
        return Said(BETWEEN_NUMBERS[word.core]) if all(map(_NUMERIC.fullmatch, around)) else None
    said = BEFORE_NUMBERS.get(word.core.lower())
    if said is None or word.closing != "." or not line.continues(place):
        return None
    if not _NUMERIC.fullmatch(line.core(place + 1)):
        return None
    if word.core.lower() in _ALSO_WORDS and not _is_reference(line, place):
        return None
    return Said(_cased(word.core, said), closing="")


def _is_reference(line: Line, place: int) -> bool:
    """Whether it is no word that ends a sentence: "No. 5 of them came", "I said no. 3 times"."""
    word = line[place]
    begins = not place or line[place - 1].closing[-1:] in (".", "!", "?")
    if word.core[0].isupper() and not (begins and word.core == "No"):
        return True
    refers = word.opening or neighbours.names(line, place)
    refers = refers or neighbours.before(line, place) in _REFERRING
    after = line[place + 1].closing or not line.continues(place + 1)
    return bool(refers or (word.core.islower() and after))


def _cased(written: str, said: str) -> str:
    return said[0].upper() + said[1:] if written[0].isupper() else said
