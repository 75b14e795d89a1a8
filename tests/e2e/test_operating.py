"""The operating page's way to start a deployment by hand, as typed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from cli.redis_server import free_port
from tests.conftest import redis_binary
from tests.e2e.pages import examples
from tests.e2e.stacks import CommandLine, command_line, demo_cache

__all__ = ["command_line", "demo_cache"]

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent


def commands(folder: Path) -> Path:
    """The commands that the page names, as an installation has them on its PATH."""
    if shutil.which("curl") is None:
        if os.environ.get("CI"):
            pytest.fail("curl is needed")
        pytest.skip("needs curl")
    folder.mkdir()
    (folder / "redis-server").symlink_to(redis_binary())
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "psionic-csm").write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
    for script in ("python", "psionic-csm"):
        (folder / script).chmod(0o755)
    return folder


def test_a_deployment_by_hand_starts_as_typed(command_line: CommandLine, tmp_path: Path) -> None:
    """Redis, scheduler, worker and gateway, each by its own line, speak; all end with the shell."""
    (example,) = examples(ROOT / "docs" / "operating.md")
    environment = {
        **command_line.environment,
        "PATH": f"{commands(tmp_path / 'bin')}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1",
    }

    example.on_ports({"6379": free_port(), "8081": free_port()}).run(tmp_path, environment)

    assert (tmp_path / "hello.wav").read_bytes().startswith(b"RIFF")
    assert command_line.leftovers() == []
