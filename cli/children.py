"""One child process: started in a group of its own, read line by line, stopped in bounded time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.logs import LogStream

TETHER: Final = Path(__file__).with_name("tether.py")


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. ``stop_wait_s``: how long it may take from SIGTERM to its end."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stop_wait_s: float = 5.0


class Child:
    """One run of a :class:`ChildSpec`.

    ``exited(child)`` is called once, from a thread of the child's own, when the process has ended
    and its output has been read. In a process group of its own a child hears no Ctrl-C: its
    supervisor decides who stops when. Raises OSError when it can't be started, or not be heard.
    """

    def __init__(self, spec: ChildSpec, log: LogStream, exited: Callable[[Child], None]) -> None:
        self.spec = spec
        self._log = log
        self._exited = exited
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *spec.command],
            env=dict(spec.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        reader = threading.Thread(target=self._read, name=f"{spec.name}-output", daemon=True)
        waiter = threading.Thread(
            target=self._wait, args=(reader,), name=f"{spec.name}-exit", daemon=True
        )
        try:
            reader.start()
            waiter.start()
        except RuntimeError as error:
            self.kill()
            self._process.wait()
            if reader.ident is None and self._process.stdout is not None:
                self._process.stdout.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """Ends the whole group at once."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._log.write(self.spec.name, line.decode("utf-8", "replace").rstrip())

    def _wait(self, reader: threading.Thread) -> None:
        self._process.wait()
        reader.join(timeout=2.0)  # a grandchild may hold the pipe open
        self._exited(self)


def describe_exit(returncode: int | None) -> str:
    """``exit code 3``, or the name of the signal that ended it."""
    if returncode is not None and returncode < 0:
        with suppress(ValueError):
            return signal.Signals(-returncode).name
    return f"exit code {returncode}"
