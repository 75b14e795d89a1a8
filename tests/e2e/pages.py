"""The examples of a page: what is typed, and what the page says that it prints.

A fenced block after the line ``<!-- run -->`` is an example. Its lines that begin with ``# ->`` are
what it prints, line by line; ``...`` in them stands for anything.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

WAIT_S = 60.0
_EXAMPLE = re.compile(r"<!-- run -->\n```(sh|python)\n(.*?)```", re.DOTALL)
_PRINTS = re.compile(r"^# -> ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """One example and where it stands."""

    page: str
    line: int
    language: str
    text: str

    def on_ports(self, ports: Mapping[str, int]) -> Example:
        """The same on other ports than the page's, which may be taken here."""
        text = self.text
        for shown, port in ports.items():
            text = re.sub(rf"\b{shown}\b", str(port), text)
        return replace(self, text=text)

    def run(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Fails unless it ends well and prints what the page says."""
        program = (
            ["bash", "-euo", "pipefail", "-c"] if self.language == "sh" else [sys.executable, "-c"]
        )
        done = subprocess.run(
            [*program, self.text],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{self.page}:{self.line}: {done.stderr}\n{done.stdout}"
        printed, promised = done.stdout.splitlines(), _PRINTS.findall(self.text)
        assert len(printed) == len(promised), f"{self.page}:{self.line} printed {done.stdout}"
        for line, promise in zip(printed, promised, strict=True):
            assert re.fullmatch(_pattern(promise), line), f"{self.page}:{self.line}: {line}"


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text(encoding="utf-8")
    for found in _EXAMPLE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Example(page.name, line, found[1], found[2])


def _pattern(promise: str) -> str:
    return ".*".join(re.escape(part) for part in promise.split("..."))
