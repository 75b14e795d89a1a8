"""The demo artifact: the trained one that comes with the package, else a seeded one built here."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cli.exits import NOT_STARTED, CommandFailed
from cli.extras import worker_extra
from gpu_worker.model.demo_sizes import SIZES
from shared.errors import SpeechError
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact
from shared.governance.locations import demo_artifact_dir, seeded_artifact_dir, spoken_demo_dir
from shared.governance.placing import place, whole
from shared.variables import read_cache_dir

RECIPE: Final = Path("gpu_worker", "model")
"""Where the modules that decide what the seeded demo is lie, below the packages' common folder."""
RECIPE_FILES: Final = "demo*.py"


def is_shipped() -> bool:
    """Whether the trained demo came with this package."""
    return (spoken_demo_dir() / MANIFEST_NAME).is_file()


def default_dir(seeded: bool, environment: Mapping[str, str] = os.environ) -> Path:
    """Where ``put`` puts it when nobody says where."""
    cache = read_cache_dir(environment)
    return seeded_artifact_dir(cache) if seeded else demo_artifact_dir(cache)


def at_hand(notify: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of the demo that this package has, put there if it is not there whole."""
    directory = demo_artifact_dir(read_cache_dir(environment))
    again = " again" if directory.exists() else ""
    if is_shipped():
        if not _is_shipped_one(whole(directory)):
            notify(f"installing the demo artifact{again}")
            put(directory)
    elif not _is_built(directory):
        notify(f"building the demo artifact{again}")
        _put_in_subprocess(directory, environment)
    return directory


def put(directory: Path, seeded: bool = False) -> Artifact:
    """Puts the demo there, unless it is there whole. Building the seeded one loads torch."""
    try:
        return _build(directory) if seeded or not is_shipped() else _install(directory)
    except OSError as error:
        is_in_the_way = isinstance(error, FileExistsError) and error.errno is None
        raise CommandFailed(
            NOT_STARTED,
            f"can't put the demo artifact in {directory}: {error.strerror or error}",
            hint=f"if it is only a damaged one: rm -r {shlex.quote(str(directory))}"
            if is_in_the_way
            else "PSIONIC_CSM_CACHE names another place for it",
        ) from error


def way_to_put_back(artifact: Artifact) -> str:
    """The command that mends a damaged demo. It replaces the demo that is there, so it must make
    this very one.
    """
    model_id = artifact.manifest.model_id
    if is_shipped() and load_artifact(spoken_demo_dir()).artifact_id == artifact.artifact_id:
        option = ""
    elif model_id == SIZES["demo"].model_id:
        option = "--seeded "
    else:
        return f"get the files of {model_id} again from whoever made it"
    directory = shlex.quote(str(artifact.directory))
    return f"psionic-csm artifacts build-demo {option}--directory {directory}"


def recipe_digest() -> str:
    """Names what builds the seeded demo: a changed recipe builds it anew. Imports none of it."""
    digest = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent / RECIPE
    for path in sorted(folder.glob(RECIPE_FILES)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _install(directory: Path) -> Artifact:
    source = spoken_demo_dir()

    def fill(empty: Path) -> None:
        for file in [path for path in source.rglob("*") if path.is_file()]:
            to = empty / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)  # raises at the first fault, copytree only at the end
        if whole(empty) is None:
            raise _damaged()

    return place(directory, _is_shipped_one, fill)


def _is_shipped_one(found: Artifact | None) -> bool:
    try:
        return found is not None and found.manifest == load_artifact(spoken_demo_dir()).manifest
    except SpeechError as error:
        raise _damaged() from error


def _damaged() -> CommandFailed:
    return CommandFailed(
        NOT_STARTED,
        "the demo artifact that came with the package is damaged: install the package again",
        hint=f"psionic-csm artifacts verify {shlex.quote(str(spoken_demo_dir()))}",
    )


def _build(directory: Path) -> Artifact:
    with worker_extra("building"):
        from gpu_worker.model.demo import build_demo
    artifact = build_demo(directory)
    _stamp(directory).write_text(recipe_digest(), encoding="ascii")
    return artifact


def _put_in_subprocess(directory: Path, environment: Mapping[str, str]) -> None:
    """Builds the seeded demo and leaves this process without torch.

    If this process is interrupted, the other gets time to remove what it has begun.
    """
    builder = subprocess.Popen(
        [sys.executable, "-m", "cli", "artifacts", "build-demo", "--directory", str(directory)],
        env={**environment, "PYTHONSAFEPATH": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    with builder:
        try:
            said, _ = builder.communicate()
        except BaseException:
            builder.terminate()
            raise
    if builder.returncode != 0:
        lines = said.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(
            NOT_STARTED, "the demo artifact could not be built", details=tuple(lines[-5:])
        )


def _is_built(directory: Path) -> bool:
    """Whether this recipe built the demo there, and every file still is what it was."""
    try:
        return whole(directory) is not None and (
            _stamp(directory).read_text(encoding="ascii") == recipe_digest()
        )
    except (SpeechError, OSError, ValueError):
        return False


def _stamp(directory: Path) -> Path:
    return directory.parent / f".{directory.name}.recipe"
