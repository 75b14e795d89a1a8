"""Where artifacts live on this machine. Looks and never fetches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def demo_artifact_dir(cache: Path) -> Path:
    """Where the demo artifact is served from, below ``shared.variables.read_cache_dir``."""
    return cache / "artifacts" / "csm-demo"


def seeded_artifact_dir(cache: Path) -> Path:
    """Where the demo of seeded weights is built when it is asked for by name."""
    return cache / "artifacts" / "csm-tiny"


def spoken_demo_dir() -> Path:
    """The trained demo, which comes with the package. Not there in a tree without its weights."""
    return Path(__file__).parent / "spoken_demo"


def csm_1b_dir() -> Path:
    """The manifests of CSM-1B, which come with the package; its files are the operator's to get."""
    return Path(__file__).parent / "csm_1b"


def hub_candidates(root: Path, repo: str, name: str, digest: str) -> Iterator[Path]:
    """Files of one hub cache that may be ``name`` of ``repo``: by digest, then by snapshot."""
    folder = root / f"models--{repo.replace('/', '--')}"
    yield folder / "blobs" / digest.removeprefix("sha256:")
    try:
        snapshots = sorted(folder.glob(f"snapshots/*/{name}"))
    except OSError:  # a folder that this user may not look into: the blob's opening says so
        snapshots = []
    yield from snapshots
