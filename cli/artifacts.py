"""Artifacts on this machine: which one to serve, what is in a directory, what is made of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cli import demo, remedies
from cli.exits import NOT_GENUINE, NOT_STARTED, USAGE, CommandFailed
from cli.extras import worker_extra
from shared.digests import file_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, load_artifact
from shared.governance.locations import csm_1b_dir
from shared.governance.manifests import ONE_EACH, Role
from shared.governance.placing import DEMO_PREFIX
from shared.variables import read_artifact_dirs, read_cache_dir, read_hub_roots

CSM_1B: Final = "csm-1b"
"""A name for the directory of CSM-1B's manifests, which comes with the package."""


VOICES_FAULTS: Final = (
    "voice_profile_source_unavailable",
    "voice_profile_descriptor_unavailable",
    "voice_profile_digest_mismatch",
)
"""Codes of an artifact whose manifest is good and whose voices are not."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One file of an artifact and what became of its check."""

    name: str
    role: str
    path: Path
    size: int | None
    fault: str | None


def chosen_or_demo(
    chosen: Path | None, notify: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> Path:
    """The artifact to serve: the one named, else the environment's first, else the demo.

    The demo is put there if it is not there whole, as this package has it. Raises
    :class:`CommandFailed` for a directory that holds no artifact.
    """
    configured = read_artifact_dirs(environment)
    directory = chosen or (configured[0] if configured else None)
    if directory is not None:
        return open_artifact(directory).directory
    return demo.at_hand(notify, environment)


def open_artifact(directory: Path) -> Artifact:
    """The artifact in a directory, or the one that the package calls ``csm-1b``."""
    if str(directory) == CSM_1B and not directory.exists():
        directory = csm_1b_dir()
    try:
        return load_artifact(directory.absolute())
    except SpeechError as error:
        raise CommandFailed(
            NOT_STARTED,
            f"{directory}: {error.message}",
            code=error.code,
            hint=remedies.of_worker(error.code, str(directory)),
        ) from error


def open_to_verify(directory: Path) -> Artifact:
    """As ``open_artifact``; but voices that its manifest does not name are a file that differs."""
    try:
        return open_artifact(directory)
    except CommandFailed as failed:
        if failed.code not in VOICES_FAULTS:
            raise
        raise CommandFailed(
            NOT_GENUINE, failed.message, code=failed.code, hint=remedies.VOICES
        ) from failed


def quantize_here(source: Path, target: Path, bits: int) -> Artifact:
    """Makes a quantized artifact in this process, which loads torch."""
    directory = open_artifact(source).directory
    with worker_extra("quantizing"):
        from gpu_worker.model.quantize import quantize_artifact
        from gpu_worker.model.weights import BadFile
    try:
        return quantize_artifact(directory, target, bits, read_hub_roots())
    except ValueError as error:
        raise CommandFailed(USAGE, str(error)) from error
    except SpeechError as error:
        raise CommandFailed(NOT_STARTED, error.message, code=error.code) from error
    except BadFile as error:
        raise CommandFailed(NOT_GENUINE, str(error)) from error
    except OSError as error:
        raise CommandFailed.by(error, f"can't make {target}: ") from error


def compare_here(
    parent: Path, child: Path, frames: int, dtype: str, notify: Callable[[str], None]
) -> dict[str, object]:
    """How far ``child`` agrees with the artifact it was made from, by what it speaks here."""
    one, other = open_artifact(parent), open_artifact(child)
    if other.manifest.parent_artifact_id != one.artifact_id:
        raise CommandFailed(USAGE, f"{other.artifact_id} was not made from {one.artifact_id}")
    if dtype not in ("bfloat16", "float32"):
        raise CommandFailed(USAGE, "--dtype is bfloat16 or float32")
    with worker_extra("comparing"):
        import torch

        from benchmarks.agreement import agreement
    try:
        found = agreement(one, other, frames, getattr(torch, dtype), notify)
    except SpeechError as error:
        raise CommandFailed(NOT_STARTED, error.message, code=error.code) from error
    return {"parent": one.artifact_id, "artifact": other.artifact_id} | asdict(found)


def known_directories(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where artifacts are: as configured, in the cache of those built here, in this package."""
    cache = read_cache_dir(environment)
    cached = sorted(
        path.parent
        for path in cache.glob("**/manifest.json")
        if not any(part.startswith(".") for part in path.relative_to(cache).parts)  # unfinished
    )
    packaged = [csm_1b_dir()] if csm_1b_dir().is_dir() else []
    return tuple(dict.fromkeys([*read_artifact_dirs(environment), *cached, *packaged]))


def verify(artifact: Artifact) -> Iterator[Verified]:
    """Hashes every file that the manifest names, where a worker would find it."""
    for name, entry in artifact.manifest.files.items():
        tried = [
            _check(name, entry.role, path, entry.sha256, entry.bytes)
            for path in _places(artifact, name, entry.role)
        ]
        yield next((each for each in tried if each.fault is None), tried[0])


def _places(artifact: Artifact, name: str, role: Role) -> list[Path]:
    found = list(artifact.candidates(role, read_hub_roots())) if role in ONE_EACH else []
    return found or [artifact.directory / name]


def _check(name: str, role: str, path: Path, digest: str, size: int | None) -> Verified:
    try:
        actual = path.stat().st_size
        fault = None if file_sha256(path) == digest else "its digest is another"
    except OSError as error:
        return Verified(name, role, path, None, error.strerror or "can't be read")
    if size is not None and actual != size:
        fault = f"{actual} bytes, not {size}"
    return Verified(name, role, path, actual, fault)


def not_genuine(artifact: Artifact, faults: list[Verified]) -> CommandFailed:
    missing = [each for each in faults if each.size is None]
    is_missing_only = len(missing) == len(faults)
    return CommandFailed(
        NOT_GENUINE,
        f"{artifact.manifest.model_id}: "
        + ("files are missing" if is_missing_only else "not what its manifest says"),
        details=tuple(f"{each.name}: {each.fault}" for each in faults),
        hint=_way_to_get(artifact, faults),
    )


def _way_to_get(artifact: Artifact, faults: list[Verified]) -> str:
    """The command that puts back what is missing or differs."""
    manifest = artifact.manifest
    if manifest.model_id.startswith(DEMO_PREFIX):
        return demo.way_to_put_back(artifact)
    if manifest.parent_artifact_id is not None:
        return f"make it again from {manifest.parent_artifact_id}: psionic-csm artifacts quantize"
    repositories = {
        "csm_config": manifest.csm_repo,
        "csm_model": manifest.csm_repo,
        "llama_tokenizer": manifest.llama_tokenizer_repo,
        "mimi_weight": manifest.mimi_repo,
    }
    commands = [
        f"hf download {repositories[each.role]} {each.name}"
        for each in faults
        if each.role in repositories
    ]
    return "; ".join([*commands, "docs/artifacts.md says more"])
