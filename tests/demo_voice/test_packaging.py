"""The recipe stays out of what is shipped."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_recipe_is_not_packaged() -> None:
    """Neither wheel nor source archive carries it, and what runs needs no pocketsphinx."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    targets = project["tool"]["hatch"]["build"]["targets"]

    assert "demo_voice" not in targets["wheel"]["packages"]
    assert "/demo_voice" not in targets["sdist"]["include"]
    extras = project["project"]["optional-dependencies"]
    needing = [name for name, needs in extras.items() if "pocketsphinx" in str(needs)]
    assert needing == ["dev"]
