"""The tests' manifests, to be changed, and a place to write them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.manifests import MANIFEST, VOICES, write_manifests

Write = Callable[[dict[str, Any], dict[str, Any]], Path]


@pytest.fixture
def manifest() -> dict[str, Any]:
    """A manifest document that may be changed."""
    return copy.deepcopy(MANIFEST)


@pytest.fixture
def voices() -> dict[str, Any]:
    """A voice manifest document that may be changed."""
    return copy.deepcopy(VOICES)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a manifest and its voices into a directory and returns it."""
    return partial(write_manifests, tmp_path)
