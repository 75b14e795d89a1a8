"""Runs the command line as a person does: real processes, and a mark by which to find them all."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpx
import pytest

from shared.governance.locations import seeded_artifact_dir

WAIT_S = 150.0
MARK = "STACK_TEST_MARK"


class CommandLine:
    """The ``psionic-csm`` command in an environment of a test's own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.mark = uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("PSIONIC_CSM_") and name != "REDIS_URL"
            },
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            **noise(cache),
            "PSIONIC_CSM_DRAIN_GRACE_MS": "5000",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cli", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, out, err

    def json(self, *arguments: str) -> dict[str, Any]:
        """What a command that succeeds prints with --json."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    def processes(self) -> dict[int, str]:
        """Every process that descends from one started here, with its command line."""
        return {pid: command for pid, command in _processes() if self.mark in _environment(pid)}

    def workers(self) -> set[int]:
        """The process ids of the workers."""
        return {pid for pid, command in self.processes().items() if "gpu_worker" in command}

    def leftovers(self) -> list[str]:
        """Processes and temporary files that should not be there any more."""
        return [*self.processes().values(), *map(str, self.temporary.iterdir())]


class Up:
    """``psionic-csm up`` in the background, its log read line by line."""

    def __init__(self, line: CommandLine, *arguments: str) -> None:
        self.command_line = line
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = line.start("up", "--port", "0", *arguments)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)

    @property
    def url(self) -> str:
        line = self.wait_for(r"\| ready +http")
        found = re.search(r"http://[0-9.:]+", line)
        assert found is not None
        return found[0]

    def wait_for(self, pattern: str) -> str:
        """The first line of the log that matches, seen already or yet to come."""
        deadline = time.monotonic() + WAIT_S
        with self._news:
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no {pattern!r} in\n" + "\n".join(self.lines))
                self._news.wait(min(left, 1.0))

    def stop(self, signum: int) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        code = self.process.wait(timeout=WAIT_S)
        self._reader.join(timeout=WAIT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()


def busy_worker(url: str) -> int:
    """The process id of a worker that is speaking, as soon as one says that it is."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        load = httpx.get(f"{url}/psionic/csm/load", trust_env=False).json()
        for worker in load["workers"]:
            if worker["in_flight"]:
                return int(worker["pid"])
        threading.Event().wait(0.02)
    raise AssertionError("no worker got busy")


@pytest.fixture(scope="module")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the seeded demo in it, the same for all modules of a run.

    Built by one thread: on a busy machine several wait for each other longer than a test may take.
    """
    import torch

    from gpu_worker.model.demo import build_demo

    cache, threads = tmp_path_factory.getbasetemp() / "demo-cache", torch.get_num_threads()
    torch.set_num_threads(1)
    build_demo(seeded_artifact_dir(cache))
    torch.set_num_threads(threads)
    return cache


def noise(cache: Path) -> dict[str, str]:
    """Settings that serve the seeded demo of ``cache``: it costs little and says what it is told
    to say for as long as it is allowed to."""
    return {
        "PSIONIC_CSM_CACHE": str(cache),
        "PSIONIC_CSM_ARTIFACTS": str(seeded_artifact_dir(cache)),
    }


@pytest.fixture
def command_line(tmp_path: Path, demo_cache: Path) -> CommandLine:
    return CommandLine(tmp_path, demo_cache)


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if command:
                yield int(entry.name), command


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
