"""Asks a gateway's health again and again, from a process of its own, and prints how long it took.

    python -m tests.chaos.prober URL

Ends at SIGTERM with one JSON list of milliseconds on standard output. What is measured is the
gateway: a caller that has two hundred streams to read is no clock.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
import time
from urllib.parse import urlsplit

PAUSE_S = 0.03


def ask(host: str) -> float:
    """The milliseconds of one ``GET /health`` on a connection of its own."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"/health answered {answer.status}")
    return 1000 * (time.monotonic() - began)


def main(url: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    host = urlsplit(url).netloc
    took: list[float] = []
    while not stop.wait(PAUSE_S):
        took.append(ask(host))
    sys.stdout.write(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1])
