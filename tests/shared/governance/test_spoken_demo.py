"""The trained demo comes with the package: whoever installs a wheel finds it whole."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from shared.governance.locations import spoken_demo_dir
from shared.governance.placing import whole

ROOT = Path(__file__).resolve().parents[3]


def targets() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = project["tool"]["hatch"]["build"]["targets"]
    return found


def test_every_file_is_there_and_is_what_the_manifest_says() -> None:
    """Each named file with its digest, and no other that the wheel would carry along."""
    artifact = whole(spoken_demo_dir())

    assert artifact is not None
    files = {path for path in artifact.directory.rglob("*") if path.is_file()}
    assert {str(path.relative_to(artifact.directory)) for path in files} == {
        "manifest.json",
        *artifact.manifest.files,
    }


def test_wheel_and_source_archive_carry_every_file() -> None:
    """It lies in a package that both ship whole; the builder leaves out only what git ignores."""
    package = spoken_demo_dir().relative_to(ROOT).parts[0]
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]

    assert package in targets()["wheel"]["packages"]
    assert f"/{package}" in targets()["sdist"]["include"]
    assert {key for target in targets().values() for key in target} == {"packages", "include"}
    parts = {part for path in spoken_demo_dir().rglob("*") for part in path.relative_to(ROOT).parts}
    assert [name for name in parts if any(fnmatch(name, pattern) for pattern in ignored)] == []


def test_nothing_is_shipped_but_what_runs() -> None:
    """No test, and not the recipe that trained it."""
    shipped = set(targets()["wheel"]["packages"])

    assert shipped == {"benchmarks", "cli", "gateway", "gpu_worker", "scheduler", "shared"}
    assert {name.strip("/") for name in targets()["sdist"]["include"]} - shipped == {
        "README.md",
        "LICENSE",
    }
