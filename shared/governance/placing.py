"""A demo artifact put where it is served from: whole at once, by one process at a time."""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.digests import file_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact

DEMO_PREFIX: Final = "psionic-demo/"
"""Begins every demo's model id: only such an artifact is ever replaced."""


def place(
    directory: Path, is_wanted: Callable[[Artifact], bool], fill: Callable[[Path], None]
) -> Artifact:
    """The artifact in ``directory`` if it is whole and wanted, else what ``fill`` makes there.

    ``fill`` gets an empty directory, which appears under its name at once and complete; processes
    that place the same one at a time wait for each other. Raises FileExistsError when something is
    there that is no demo artifact, OSError when it can't be written.
    """
    directory = directory.absolute()
    there = whole(directory)
    if there is not None and is_wanted(there):
        return there  # which another user may have put there, where nothing can be written
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _lock(directory.parent / f".{directory.name}.lock"):
        found = whole(directory)
        if found is not None and is_wanted(found):
            return found
        _check_replaceable(directory)
        _sweep(directory)
        work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            fill(work)
            work.chmod(0o755)
            if directory.exists():
                shutil.rmtree(directory)
            work.rename(directory)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return load_artifact(directory)


def whole(directory: Path) -> Artifact | None:
    """The artifact in ``directory`` if every file that it names is there with its digest."""
    try:
        artifact = load_artifact(directory)
        files = artifact.manifest.files.items()
        is_whole = all(file_sha256(directory / name) == entry.sha256 for name, entry in files)
    except (SpeechError, OSError):
        return None
    return artifact if is_whole else None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system releases it if that process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(directory: Path) -> None:
    """Removes what was left by one that was killed; under the lock nobody else is at it."""
    for left in directory.parent.glob(f".{directory.name}.*/"):
        shutil.rmtree(left, ignore_errors=True)


def _check_replaceable(directory: Path) -> None:
    """Raises FileExistsError unless there is nothing, or a demo that went bad or out of date."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    try:
        model_id = json.loads((directory / MANIFEST_NAME).read_bytes())["model_id"]
    except (OSError, ValueError, KeyError, TypeError):
        model_id = None
    if not isinstance(model_id, str) or not model_id.startswith(DEMO_PREFIX):
        raise FileExistsError(f"{directory} holds something else than a demo artifact")
