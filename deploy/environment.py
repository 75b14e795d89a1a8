"""Makes the project's virtual environment. Standard library only: it runs before anything is there.

    python deploy/environment.py <directory> <extras>

Prints what takes time. On failure prints the end of pip's log, leaves no stamp and exits 1, so that
the next run tries again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOWEST: Final = (3, 11)
BEYOND: Final = (3, 14)
TAIL: Final = 25
"""Lines of pip's output shown when it fails."""

_DOWNLOAD: Final = re.compile(r"^\s*(?:Downloading|Using cached) (\S+?)(?:\.whl|\.tar\.gz)\b.*")
_SIZE: Final = re.compile(r"\(([\d.]+) ([kMG]B)\)")


class SetupFailed(Exception):
    """Set-up can't go on; the message says what to do."""


def main() -> int:
    directory, extras = Path(sys.argv[1]), sys.argv[2]
    began = time.monotonic()
    try:
        python = ensure_venv(directory)
        install(python, extras, directory / "install.log")
    except SetupFailed as failure:
        say(f"set-up failed: {failure}")
        return 1
    say(f"set-up done in {time.monotonic() - began:.0f} s")
    return 0


def ensure_venv(directory: Path) -> Path:
    """The environment's interpreter; an environment that works is kept as it is."""
    python = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if _works(python):
        return python
    if not LOWEST <= sys.version_info[:2] < BEYOND:
        raise SetupFailed(
            f"Python 3.11, 3.12 or 3.13 is needed, and this is {sys.version.split()[0]}. "
            "Name another one: make PYTHON=/path/to/python3.12 ..."
        )
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu package it apart)
    except ImportError as error:
        name = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise SetupFailed(
            f"this Python can't make virtual environments. On Debian or Ubuntu: apt install {name}"
        ) from error
    say(f"creating {directory} with Python {sys.version.split()[0]}")
    try:
        venv.create(directory, with_pip=True, clear=directory.exists(), symlinks=os.name != "nt")
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupFailed(f"could not create {directory}: {error}") from error
    return python


def install(python: Path, extras: str, log: Path) -> None:
    """Installs the project, editable, with these extras."""
    say(f"installing psionic-csm-speech[{extras}] (PyTorch is large: minutes, the first time)")
    command = [str(python), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", *os.environ.get("PIP_FLAGS", "").split()]
    process = subprocess.Popen(
        [*command, "--editable", f"{ROOT}[{extras}]"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    lines = []
    with log.open("w", encoding="utf-8") as file:
        for line in process.stdout:
            file.write(line)
            lines.append(line.rstrip())
            for message in progress(line):
                say(message)
    if process.wait() != 0:
        sys.stderr.write("\n".join(lines[-TAIL:]) + "\n")
        raise SetupFailed(f"pip could not install the packages (the whole log is {log})")


def progress(line: str) -> Iterator[str]:
    """What of pip's output is worth a person's attention: big downloads and the last step."""
    download = _DOWNLOAD.match(line)
    size = _SIZE.search(line)
    if download and size and (size[2] == "GB" or (size[2] == "MB" and float(size[1]) >= 50)):
        name, version = download[1].rsplit("/", 1)[-1].split("-")[:2]
        yield f"  downloading {name} {version} ({size[1]} {size[2]})"
    elif line.startswith("Installing collected packages:"):
        yield f"  unpacking {line.count(',') + 1} packages"


def say(message: str) -> None:
    sys.stdout.write(f"[setup] {message}\n")
    sys.stdout.flush()


def _works(python: Path) -> bool:
    if not python.exists():
        return False
    check = "import sys, pip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))"
    done = subprocess.run([str(python), "-c", check], capture_output=True, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
