"""One log stream of several processes: each line labelled, each process in its own colour."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Final, TextIO

COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""ANSI foreground colours, handed out in the order in which labels appear."""
OWN: Final = "stack"
"""The label of what the supervisor says itself."""
KEPT: Final = 200
"""Lines of each process that are kept for an error message."""

_LEFT_OUT: Final = frozenset({"event", "level", "timestamp", "role"})


class LogStream:
    """Takes lines from any thread. Shows them on ``out``, or only keeps them if that is None.

    On a terminal a structured line is shown as a readable one; elsewhere it passes as it is.
    """

    def __init__(self, out: TextIO | None, *, colour: bool = False, width: int = 9) -> None:
        self._out = out
        self._colour = colour
        self._width = width
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}
        self._colours: dict[str, int] = {}
        self._kept: dict[str, deque[str]] = {}

    def write(self, label: str, line: str) -> None:
        with self._news:
            self._kept.setdefault(label, deque(maxlen=KEPT)).append(line)
            self._counts[label] = self._counts.get(label, 0) + 1
            self._news.notify_all()
            if self._out is not None:
                self._show(self._out, label, line)

    def wait_for_news(self, seen: int, *, besides: str, timeout_s: float) -> int:
        """Waits for more than ``seen`` lines of all but ``besides``; how many there are."""

        def count() -> int:
            return sum(number for label, number in self._counts.items() if label != besides)

        with self._news:
            self._news.wait_for(lambda: count() > seen, timeout_s)
            return count()

    def tail(self, label: str, count: int = 8) -> tuple[str, ...]:
        """The last lines of one process, readable."""
        with self._lock:
            return tuple(readable(line) for line in list(self._kept.get(label, ()))[-count:])

    def _show(self, out: TextIO, label: str, line: str) -> None:
        name = label.ljust(self._width)
        if self._colour:
            number = self._colours.setdefault(label, COLOURS[len(self._colours) % len(COLOURS)])
            text = f"\x1b[{number}m{name} |\x1b[0m {readable(line)}\n"
        else:
            text = f"{name} | {line}\n"
        try:
            out.write(text)
            out.flush()
        except (BrokenPipeError, ValueError):
            self._out = None  # nobody reads it any more; the processes go on
        except OSError:
            return  # full, which may pass


def readable(line: str) -> str:
    """A structured line as ``time event key=value ...``; any other line as it is."""
    if not line.startswith("{"):
        return line
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict) or "event" not in event:
        return line
    time = str(event.get("timestamp", ""))[11:19]
    level = str(event.get("level", "info"))
    facts = [f"{key}={value}" for key, value in event.items() if key not in _LEFT_OUT]
    head = [time, "" if level == "info" else level.upper(), str(event["event"])]
    return " ".join([*(part for part in head if part), *facts])
