"""The one log stream of a stack."""

from __future__ import annotations

import io
import json
import threading

from cli.logs import KEPT, LogStream, readable

STRUCTURED = json.dumps(
    {
        "event": "worker_ready",
        "lanes": 4,
        "role": "worker",
        "level": "warning",
        "timestamp": "2026-01-02T03:04:05.678Z",
    }
)


def test_a_structured_line_passes_as_it_is_where_no_terminal_is() -> None:
    """A machine that reads the stream gets each process's own JSON after the label."""
    out = io.StringIO()

    LogStream(out).write("worker-1", STRUCTURED)

    label, _, line = out.getvalue().rstrip("\n").partition(" | ")
    assert label.strip() == "worker-1"
    assert json.loads(line)["event"] == "worker_ready"


def test_a_terminal_gets_a_colour_for_each_process_and_readable_lines() -> None:
    """Two processes differ in colour, one keeps its own, and JSON is told in words."""
    out = io.StringIO()
    log = LogStream(out, colour=True)

    for label in ("gateway", "worker-1", "gateway"):
        log.write(label, STRUCTURED)

    first, second, third = out.getvalue().splitlines()
    assert first == third
    assert first[:5] != second[:5]
    assert "03:04:05 WARNING worker_ready lanes=4" in first


def test_lines_that_are_no_events_stay_as_they_are() -> None:
    """A traceback or half a JSON object is shown unchanged."""
    for line in ("Traceback:", "{half", "{}", '{"a": 1}', "[1]"):
        assert readable(line) == line


def test_the_tail_of_a_process_is_kept_without_output() -> None:
    """A silent stream still knows the last lines of each process, and not more than it may."""
    log = LogStream(None)
    for number in range(KEPT + 50):
        log.write("gateway", f"line {number}")

    assert log.tail("gateway", 2) == (f"line {KEPT + 48}", f"line {KEPT + 49}")
    assert len(log.tail("gateway", 10_000)) == KEPT
    assert log.tail("never seen") == ()


def test_news_of_others_wakes_who_waits() -> None:
    """A line wakes the waiter at once, except those of the process that it asked to ignore."""
    log = LogStream(None)
    log.write("gateway", "noise")

    assert log.wait_for_news(0, besides="gateway", timeout_s=0.01) == 0
    teller = threading.Timer(0.01, log.write, ("worker-1", "ready"))
    teller.start()
    assert log.wait_for_news(0, besides="gateway", timeout_s=60.0) == 1
    teller.join()


def test_a_reader_that_went_away_stops_no_process() -> None:
    """Once the pipe behind the stream is closed, lines are kept and nothing is raised."""
    out = io.StringIO()
    log = LogStream(out)
    out.close()

    log.write("gateway", "one")
    log.write("gateway", "two")

    assert log.tail("gateway") == ("one", "two")
