"""How long a text takes to be said."""

from __future__ import annotations

from typing import Final

LEAD_IN_MS: Final = 480
"""Speech may begin so late."""
BASE_LENGTH_MS: Final = 1500
LENGTH_PER_CHARACTER_MS: Final = 120
CHARACTERS_PER_SECOND: Final = 25
"""Faster than anyone speaks: a text that needs more can't be spoken whole."""


def wanted_ms(text: str) -> int:
    """What an unhurried speaker may take for a text: how long an answer may be, if nobody asks."""
    return BASE_LENGTH_MS + LENGTH_PER_CHARACTER_MS * len(text)


def is_speakable(text: str, audio_ms: int) -> bool:
    """Whether the whole text can be said within ``audio_ms``."""
    return len(text) * 1000 <= CHARACTERS_PER_SECOND * audio_ms
