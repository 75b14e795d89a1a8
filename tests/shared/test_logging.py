"""Log lines, as operators read them."""

from __future__ import annotations

import json
import subprocess
import sys

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
