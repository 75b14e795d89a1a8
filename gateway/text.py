"""The text to speak: what may be said, and in which form."""

from __future__ import annotations

import unicodedata
from typing import Final

from gateway.spoken_en.speller import spoken_en
from shared.errors import SpeechError

MAX_INPUT_CHARACTERS: Final = 4096

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
    """Whether there is something to it: neither space nor a mark that only formats."""
    return not character.isspace() and unicodedata.category(character) != "Cf"


def _is_refused(character: str) -> bool:
    return character not in "\t\r\n" and unicodedata.category(character) in ("Cc", "Cs")


def _too_long(when: str = "") -> SpeechError:
    return SpeechError(
        "input_too_long", f"input has over {MAX_INPUT_CHARACTERS} characters{when}", param="input"
    )
