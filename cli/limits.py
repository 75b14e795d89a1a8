"""What the served artifact says that it can't say, and which words of a text that touches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


@dataclass(frozen=True, slots=True)
class SpeechLimits:
    """An artifact's own note, and the words of one text that it doesn't know, each once."""

    note: str
    unknown_words: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {"note": self.note, "unknown_words": list(self.unknown_words)}

    def rows(self) -> list[tuple[str, str | None]]:
        """Named lines for a person."""
        return [("note", self.note), ("unknown", ", ".join(self.unknown_words) or None)]


def limits_on(text: str, stated: Any) -> SpeechLimits | None:
    """For ``speech_limits`` as an artifact or a gateway's health states them; None without any."""
    if not isinstance(stated, Mapping):
        return None
    return SpeechLimits(str(stated.get("note")), unknown_words(text, stated.get("vocabulary")))


def unknown_words(text: str, vocabulary: object) -> tuple[str, ...]:
    """The words of ``text`` outside a vocabulary, each once; none where there is no bound."""
    if not isinstance(vocabulary, list):
        return ()
    known = set(vocabulary)
    said = _WORD.findall(text.lower().replace("\u2019", "'"))
    return tuple(dict.fromkeys(word for word in said if word not in known))
