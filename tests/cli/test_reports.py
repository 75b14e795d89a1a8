"""Files of numbers that benchmarks leave behind: whole or not at all, and known beforehand."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli import main, reports
from cli.exits import NOT_STARTED, USAGE, CommandFailed


@contextmanager
def little_room() -> Iterator[None]:
    """No file of this process may have more than a kilobyte; not even that with the tests' log."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_report_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    """The former numbers stay, nothing half is there, and the path is told."""
    path = tmp_path / "report.json"
    path.write_text("the former")

    with little_room(), pytest.raises(CommandFailed, match=r"can't write .*report\.json") as caught:
        reports.write(path, "x" * 5000)

    assert caught.value.exit_code == NOT_STARTED
    assert path.read_text() == "the former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "command",
    ["bench queue --json", "bench load --plot", "bench engine --json", "smoke --json"],
)
def test_a_report_that_has_no_place_is_told_before_anything_is_measured(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes of measuring are not thrown away for a folder that is not there."""
    assert main.run([*command.split(), "no/such/folder/x"]) == USAGE
    assert "there is no folder" in capsys.readouterr().err
