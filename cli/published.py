"""What a gateway of any version publishes: values as far as they are there, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

UNSAID: Final = "?"
"""Shown in place of what isn't published."""


class Part:
    """A JSON object in a document. ``missing`` collects the names that were looked for in vain,
    those of the parts inside included.
    """

    def __init__(self, document: Any, name: str, missing: dict[str, None] | None = None) -> None:
        self._name = name
        self._is_there = isinstance(document, Mapping)
        self.document: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
        self.missing: dict[str, None] = {} if missing is None else missing

    def text(self, name: str) -> str:
        """A value that is always published, as it is shown."""
        value = self._find(name)
        return UNSAID if value is None or isinstance(value, Mapping | list) else str(value)

    def optional(self, name: str) -> str | None:
        """A text that may be null or left out."""
        value = self.document.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> float | None:
        """None where it is null, too."""
        value = self._find(name)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        self._note(name)
        return None

    def inside(self, name: str) -> Part:
        """An object that is always there; empty where it isn't."""
        found = self._find(name)
        if found is not None and not isinstance(found, Mapping):
            self._note(name)
        return Part(found, f"{self._name}.{name}", self.missing)

    def parts(self, name: str) -> list[Part]:
        """The objects of a list."""
        found = self._find(name)
        if not isinstance(found, list):
            self._note(name)
            return []
        return [Part(each, f"{self._name}.{name}[]", self.missing) for each in found]

    def _find(self, name: str) -> Any:
        if name not in self.document:
            self._note(name)
        return self.document.get(name)

    def _note(self, name: str) -> None:
        """Of a part that isn't there as a whole, that alone was noted."""
        if self._is_there:
            self.missing[f"{self._name}.{name}"] = None
