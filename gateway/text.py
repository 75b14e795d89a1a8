"""The text to speak: what may be said, and in which form."""

from __future__ import annotations

import unicodedata
from typing import Final

from gateway.spoken_en.speller import spoken_en
from shared.errors import SpeechError

MAX_INPUT_CHARACTERS: Final = 4096

IGNORABLE: Final = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Default_Ignorable_Code_Point, whole: first and last of each range of Unicode's
DerivedCoreProperties.txt, as of Unicode 16.0. Python's ``unicodedata`` doesn't tell it."""
BLANKS: Final = "\u2800\U00013441\U00013442\U00016fe4\U0001d159"
"""Characters whose glyph is empty by Unicode's charts and which count as symbols, letters or marks:
Braille pattern blank, Egyptian full and half blank, Khitan filler, musical null notehead."""
UNSEEN: Final = frozenset(BLANKS).union(chr(c) for a, b in IGNORABLE for c in range(a, b + 1))

AS_SENT: Final = "none"
SPOKEN_EN: Final = "spoken_en"
NORMALIZATIONS: Final = (AS_SENT, SPOKEN_EN)
"""``text_normalization``: what is done to a text before it is spoken."""


def spoken_text(text: str, normalization: str = AS_SENT) -> str:
    """The input in NFC, and then as ``normalization`` spells it; otherwise as sent.

    Raises SpeechError: ``empty_input``, ``invalid_input_text``, ``input_too_long``.
    """
    composed = _composed(text)
    if normalization == AS_SENT:
        return composed
    spelled = spoken_en(composed)
    if len(spelled) > MAX_INPUT_CHARACTERS:
        raise _too_long(" once it is spelled out")
    return spelled


def _composed(text: str) -> str:
    if not any(map(_is_seen, text)):
        raise SpeechError("empty_input", "input is blank", param="input")
    if len(text) > MAX_INPUT_CHARACTERS:
        raise _too_long()
    if any(_is_refused(character) for character in text):
        raise SpeechError(
            "invalid_input_text",
            "input has control characters other than tab, carriage return and line feed, "
            "or unpaired surrogates",
            param="input",
        )
    normal = unicodedata.normalize("NFC", text)
    if len(normal) > MAX_INPUT_CHARACTERS:
        raise _too_long()
    return normal


def _is_seen(character: str) -> bool:
    """Whether there is something to it: neither space, nor blank, nor a mark that only formats."""
    is_unseen = character.isspace() or character in UNSEEN
    return not is_unseen and unicodedata.category(character) != "Cf"


def _is_refused(character: str) -> bool:
    return character not in "\t\r\n" and unicodedata.category(character) in ("Cc", "Cs")


def _too_long(when: str = "") -> SpeechError:
    return SpeechError(
        "input_too_long", f"input has over {MAX_INPUT_CHARACTERS} characters{when}", param="input"
    )
