"""What the served artifact says that it can't say, and which words of a text that touches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def warnings(health: Mapping[str, Any], text: str) -> list[tuple[str, str]]:
    """Named lines for whoever asks for ``text``, from a gateway's health document."""
    limits = health.get("speech_limits")
    if not isinstance(limits, Mapping):
        return []
    found = [("note", str(limits.get("note")))]
    if unknown := unknown_words(text, limits.get("vocabulary")):
        found.append(("unknown", ", ".join(unknown)))
    return found


def unknown_words(text: str, vocabulary: object) -> list[str]:
    """The words of ``text`` outside a vocabulary, each once; none where there is no bound."""
    if not isinstance(vocabulary, list):
        return []
    known = set(vocabulary)
    said = _WORD.findall(text.lower().replace("\u2019", "'"))
    return list(dict.fromkeys(word for word in said if word not in known))
