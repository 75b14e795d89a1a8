"""Prints deploy/constraints.txt: the versions, in this environment, of all that the service needs.

make setup && make test
.venv/bin/python deploy/constraints.py > deploy/constraints.txt
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = "psionic-csm-speech"
EXTRAS: Final = ("worker", "formats", "otel", "embedded")
LEFT_OUT: Final = {PROJECT, "pip", "setuptools"}
"""What each environment brings for its own Python."""
HEAD: Final = """\
# What the images install: the versions that the tests passed with, of all that the service needs
# (extras worker, formats, otel and embedded). pyproject.toml says what may be installed, this file
# what was tried. Made by deploy/constraints.py.
"""


def main() -> int:
    todo = [(PROJECT, extra) for extra in ("", *EXTRAS)]
    done: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) not in done:
            done.add((name, extra))
            todo += needed(name, extra)
    pins = sorted(f"{name}=={version(name)}" for name in {name for name, _ in done} - LEFT_OUT)
    sys.stdout.write(HEAD + "\n".join(pins) + "\n")
    return 0


def needed(name: str, extra: str) -> list[tuple[str, str]]:
    """What a package with one extra needs here, each with its own extras."""
    asked = [Requirement(line) for line in distribution(name).requires or []]
    here = [each for each in asked if each.marker is None or each.marker.evaluate({"extra": extra})]
    return [(canonicalize_name(each.name), more) for each in here for more in ("", *each.extras)]


def version(name: str) -> str:
    """Without the local part (``+cu128``), which is of an index's own build."""
    return distribution(name).version.split("+")[0]


if __name__ == "__main__":
    sys.exit(main())
