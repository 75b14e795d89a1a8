"""Tiny children for the supervisor, and a log that tests can wait for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import pytest

from cli.children import ChildSpec
from cli.logs import LogStream

WAIT_S = 20.0

STEADY = """
import signal, sys
def end(*_):
    print('terminated', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('up', flush=True)
while True:
    signal.pause()
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
while True:
    signal.pause()
"""


class HeardLog(LogStream):
    """Hands every line to the test that waits for it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lines: list[tuple[str, str]] = []
        self._arrived: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def write(self, label: str, line: str) -> None:
        super().write(label, line)
        self._arrived.put((label, line))

    def wait_for(self, label: str, part: str) -> str:
        """The next line of ``label`` with ``part`` in it; lines before it are passed over."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                heard = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(f"no {part!r} from {label} in {self.lines}") from None
            self.lines.append(heard)
            if heard[0] == label and part in heard[1]:
                return heard[1]

    def everything(self) -> list[tuple[str, str]]:
        """All lines so far."""
        while not self._arrived.empty():
            self.lines.append(self._arrived.get())
        return self.lines


@pytest.fixture
def log() -> HeardLog:
    return HeardLog()


@pytest.fixture
def child() -> Callable[..., ChildSpec]:
    """Makes the spec of a child that runs a Python program."""

    def make(name: str, program: str, stop_wait_s: float = WAIT_S) -> ChildSpec:
        return ChildSpec(name, (sys.executable, "-S", "-c", program), os.environ, stop_wait_s)

    return make


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
