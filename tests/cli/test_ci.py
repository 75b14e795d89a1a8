"""``.ci/run``: what it does about the tools that the tests need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent.parent.parent / ".ci" / "run"
CHECKED = 7
"""What ``make`` ends with here: nothing of the run itself is run."""
INSTALLS = 'echo "$@" >> "$APT"; exit 1'


def run(directory: Path, *present: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a machine that has these tools, and an apt-get that can't install any."""
    for name in ("bash", "dirname", "mktemp", "rm", "timeout"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    for name in present:
        program(directory / name, "exit 0")
    program(directory / "make", f"exit {CHECKED}")
    program(directory / "apt-get", INSTALLS)
    return subprocess.run(
        [directory / "bash", RUN],
        env={"PATH": str(directory), "APT": str(directory / "apt.log"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def program(file: Path, line: str) -> None:
    file.write_text(f"#!{shutil.which('bash')}\n{line}\n")
    file.chmod(0o755)


def test_at_a_desk_nothing_is_installed(tmp_path: Path) -> None:
    """A tool that isn't there is told, and the checks begin without it."""
    done = run(tmp_path)

    assert done.returncode == CHECKED
    assert "no promtool: its tests are skipped" in done.stderr
    assert "no chromium: its tests are skipped" in done.stderr
    assert not (tmp_path / "apt.log").exists()


@pytest.mark.parametrize(
    ("present", "missing"), [([], "promtool"), (["promtool"], "chromium")], ids=lambda each: None
)
def test_in_ci_a_tool_that_can_t_be_had_ends_the_run(
    tmp_path: Path, present: list[str], missing: str
) -> None:
    """It is tried, and nothing passes without it: no test is skipped unseen."""
    done = run(tmp_path, *present, CI="true")

    assert done.returncode == 1
    assert f"no {missing}, and it can't be installed" in done.stderr
    assert (tmp_path / "apt.log").exists()


def test_in_ci_tools_that_are_there_are_taken(tmp_path: Path) -> None:
    """Any browser will do, and nothing is installed."""
    done = run(tmp_path, "promtool", "google-chrome", CI="true")

    assert done.returncode == CHECKED, done.stderr
    assert not (tmp_path / "apt.log").exists()
