"""The text to speak: what may be said, and in which form."""

from __future__ import annotations

import unicodedata
from typing import Final

from shared.errors import SpeechError

MAX_INPUT_CHARACTERS: Final = 4096


def spoken_text(text: str) -> str:
    """The input in NFC, otherwise as sent.

    Raises SpeechError: ``empty_input``, ``invalid_input_text``, ``input_too_long``.
    """
    if not text.strip():
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


def _is_refused(character: str) -> bool:
    return character not in "\t\r\n" and unicodedata.category(character) in ("Cc", "Cs")


def _too_long() -> SpeechError:
    return SpeechError(
        "input_too_long", f"input has over {MAX_INPUT_CHARACTERS} characters", param="input"
    )
