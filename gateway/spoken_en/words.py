"""A text as a line of words, each with the white space and the punctuation around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_CORE: Final = 48
"""Nothing that is recognised is longer. That bounds the work on a word: all of it is linear."""

_SPACE_AND_WORD: Final = re.compile(r"(\s*)(\S+)")
_OPENING: Final = "([{\"'\u201c\u2018*_"
_CLOSING: Final = ".,;:!?)]}\"'\u201d\u2019\u2026*_"


@dataclass(frozen=True, slots=True)
class Word:
    """``core`` is what may be recognised; it is empty for punctuation alone, and kept within it."""

    space: str
    opening: str
    core: str
    closing: str


@dataclass(frozen=True, slots=True)
class Said:
    """What is said in the place of ``used`` words, from the first one's core to the last one's.

    ``opening`` and ``closing`` take the place of the first and the last one's, if they are given.
    """

    text: str
    used: int = 1
    closing: str | None = None
    opening: str | None = None


class Line:
    """The words of a text. Places beyond its ends are empty words."""

    def __init__(self, text: str) -> None:
        body = text.rstrip()
        self.words = [_word(*found.groups()) for found in _SPACE_AND_WORD.finditer(body)]
        self.tail = text[len(body) :]

    def __getitem__(self, place: int) -> Word:
        return self.words[place] if 0 <= place < len(self.words) else NOTHING

    def core(self, place: int) -> str:
        return self[place].core

    def adjoins(self, place: int) -> bool:
        """Whether nothing but white space within a line is between this word and the next."""
        return not self[place].closing and self.continues(place)

    def continues(self, place: int) -> bool:
        """Whether the next word begins in the same line, with no bracket or quote."""
        after = self[place + 1]
        return bool(after.core) and not after.opening and "\n" not in after.space

    def is_capital(self, place: int) -> bool:
        """Whether the word there begins as a name or a sentence does."""
        return self.core(place)[:1].isupper()

    def is_name(self, place: int) -> bool:
        """Whether the word there is a capitalised word of letters."""
        core = self.core(place)
        return core[:1].isupper() and core.replace("'", "").replace("-", "").isalpha()

    def undotted(self, last: int) -> str:
        """The closing of an abbreviation without its own full stop, which stays where it also ends
        the sentence.
        """
        closing = self[last].closing
        if not closing.startswith("."):
            return closing
        after = self[last + 1]
        ends = not (after.core or after.opening) or "\n" in after.space
        if closing == "." and (ends or self.is_capital(last + 1)):
            return closing
        return closing[1:]

    def written(self, first: int, last: int) -> str:
        """The words from one to another as they are, without what is around them."""
        whole = "".join(
            f"{word.space}{word.opening}{word.core}{word.closing}"
            for word in self.words[first : last + 1]
        )
        start, end = self[first], self[last]
        return whole[len(start.space + start.opening) : len(whole) - len(end.closing)]

    def replaced(self, said: Sequence[tuple[int, Said]]) -> str:
        """The text with each of ``said``, by place and in order, for what was written there."""
        parts: list[str] = []
        place = 0
        for start, each in [*said, (len(self.words), NOT_SAID)]:
            parts += (f"{w.space}{w.opening}{w.core}{w.closing}" for w in self.words[place:start])
            if each.used:
                first, last = self[start], self[start + each.used - 1]
                closing = last.closing if each.closing is None else each.closing
                opening = first.opening if each.opening is None else each.opening
                parts.append(f"{first.space}{opening}{each.text}{closing}")
            place = start + each.used
        return "".join(parts) + self.tail


NOTHING: Final = Word("", "", "", "")
NOT_SAID: Final = Said("", 0)


def _word(space: str, written: str) -> Word:
    bare = written.lstrip(_OPENING)
    core = bare.rstrip(_CLOSING)
    if not core or len(core) > MAX_CORE:
        return Word(space, written, "", "")
    opening = written[: len(written) - len(bare)]
    return Word(space, opening, core, bare[len(core) :])
