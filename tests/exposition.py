"""Reads what a scraper would: samples by name and labels, and promtool's opinion of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Each sample under its name and the values of its labels, in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def promtool(*arguments: str, given: bytes = b"", within: Path | None = None) -> str:
    """What promtool says; a failure if it objects. Skips where it isn't installed, unless CI says
    that it has to be.
    """
    binary = shutil.which("promtool")
    if binary is None:
        if "promtool" in os.environ.get("CI_TOOLS", ""):
            pytest.fail("CI_TOOLS names promtool, and it isn't on the PATH")
        pytest.skip("promtool isn't installed (Debian: apt install prometheus)")
    done = subprocess.run(
        [binary, *arguments], input=given, capture_output=True, timeout=60, cwd=within
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
