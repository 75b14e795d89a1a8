"""How many speech requests are open in this process, and how many may be."""

from __future__ import annotations

from collections.abc import Callable

from shared.errors import SpeechError


class OpenRequests:
    """A context manager that counts one more. ``told`` hears the number whenever it changes."""

    def __init__(self, most: int, told: Callable[[int], None] = lambda _: None) -> None:
        self.most = most
        self.count = 0
        self._told = told

    def __enter__(self) -> None:
        self.count += 1
        self._told(self.count)

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        self._told(self.count)

    def check(self) -> None:
        """With one's own counted in. Raises SpeechError("too_many_waiting")."""
        if self.count > self.most:
            raise SpeechError(
                "too_many_waiting", "this gateway has too many open requests", retry_after_s=1.0
            )
