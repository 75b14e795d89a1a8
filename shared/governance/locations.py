"""Where artifacts live on this machine. Looks and never fetches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

Env = Mapping[str, str]


def default_cache_dir(env: Env = os.environ) -> Path:
    """The directory for artifacts that we build: PSIONIC_CSM_CACHE, else below the user's cache."""
    if chosen := env.get("PSIONIC_CSM_CACHE"):
        return Path(chosen)
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "psionic-csm"


def demo_artifact_dir(env: Env = os.environ) -> Path:
    """Where the demo artifact is built."""
    return default_cache_dir(env) / "artifacts" / "csm-tiny"


def csm_1b_dir() -> Path:
    """The manifests of CSM-1B, which come with the package; its files are the operator's to get."""
    return Path(__file__).parent / "csm_1b"


def hub_roots(env: Env = os.environ) -> tuple[Path, ...]:
    """The Hugging Face hub caches to look in: HF_HOME's, then the home directory's."""
    roots = []
    if hf_home := env.get("HF_HOME"):
        roots.append(Path(hf_home) / "hub")
    if home := env.get("HOME"):
        roots.append(Path(home) / ".cache" / "huggingface" / "hub")
    return tuple(dict.fromkeys(roots))


def hub_candidates(root: Path, repo: str, name: str, digest: str) -> Iterator[Path]:
    """Files of one hub cache that may be ``name`` of ``repo``: by digest, then by snapshot."""
    folder = root / f"models--{repo.replace('/', '--')}"
    yield folder / "blobs" / digest.removeprefix("sha256:")
    yield from sorted(folder.glob(f"snapshots/*/{name}"))
