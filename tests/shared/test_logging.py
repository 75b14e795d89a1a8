"""Log lines, as operators read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

SCRIPT = """
import logging
import structlog
from shared.logging import configure_logging
configure_logging("gateway", "info")
structlog.get_logger().info("request", status=200, level_of_detail=1)
structlog.get_logger().debug("hidden")
logging.getLogger("uvicorn").warning("from a library")
"""


def test_each_line_is_json_and_says_first_when_who_and_what() -> None:
    """Ours and a library's lines are one object each, with the same four fields in front."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )

    ours, theirs = (json.loads(line) for line in done.stdout.splitlines())
    assert list(ours)[:4] == list(theirs)[:4] == ["timestamp", "level", "role", "event"]
    assert (ours["role"], ours["event"], ours["status"]) == ("gateway", "request", 200)
    assert (theirs["level"], theirs["event"]) == ("warning", "from a library")


FULL = """
import resource
import structlog
from shared.logging import configure_logging
configure_logging("gateway")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2500, hard))
for number in range(200):
    structlog.get_logger().info("request", number=number)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
structlog.get_logger().info("request", number=200)
"""


def logging_to(output: IO[bytes], script: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path, unbuffered: str) -> None:
    """What is there afterwards is whole lines; once there is room the log says that some may be
    missed, and goes on. Standard error says it once.
    """
    path = tmp_path / "log"
    with path.open("wb") as log:
        done = logging_to(log, FULL, unbuffered)

    assert done.returncode == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines if "number" in line][-1] == 200
    assert lines[-1]["event"] == "log_resumed"
    assert 200 - len(lines) < lines[-1]["lines_missed_at_most"] <= 200
    assert done.stderr == "the log can't be written: File too large\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_left_does_not_decide_on_the_exit_code(unbuffered: str) -> None:
    """As of ``| head -1``: the process goes on and ends with its own code, and no traceback."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        done = logging_to(nobody, SCRIPT, unbuffered)

    assert (done.returncode, done.stderr) == (0, "the log can't be written: Broken pipe\n")


CLOSED = """
import socket, sys
from shared.logging import configure_logging
configure_logging("gateway")
with socket.socket() as connection:
    print("to nobody")
    print("to nobody", file=sys.stderr)
    sys.exit(connection.fileno())
"""


def test_no_connection_becomes_standard_error() -> None:
    """Descriptors that were closed from the start are not given to what is opened next: libraries
    would write into it.
    """
    done = subprocess.run(
        ["bash", "-c", f'exec <&- >&- 2>&-; exec {sys.executable} -c "$CLOSED"'],
        check=False,
        env={**os.environ, "CLOSED": CLOSED},
    )

    assert done.returncode > 2
