"""One process of the service, to be killed, stalled or told to stop by a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.conftest import until

END_S = 60.0


class Process:
    """``python -m module arguments``, its output in a file for whoever has to find out why.

    ``url`` is where it answers HTTP, if it does.
    """

    def __init__(
        self, name: str, command: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        self.url = ""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def rss(self) -> int:
        """Resident memory in bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait(timeout=END_S)

    def stop(self) -> None:
        """SIGSTOP: alive, and deaf and dumb."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; it is free to take its time."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    async def ended(self, timeout_s: float = END_S) -> int:
        """Its exit code, once it has one; negative is a signal's number."""
        await until(lambda: not self.alive, timeout_s)
        code = self._process.returncode
        assert code is not None
        return code
