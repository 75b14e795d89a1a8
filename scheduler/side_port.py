"""A small port for scrapers and probes, of processes that serve no callers.

Answers ``GET`` of a few fixed paths in threads of its own, a few at a time, and nothing else. Where
all places are taken, whoever has kept us waiting the longest is let go for whoever comes: a probe
asks at once, and is answered beside any number of clients who hold connections and say nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from typing import Any, Final

import structlog
from prometheus_client.metrics_core import Metric

from shared.environment import SettingsError
from shared.errors import CODES, PROBE_NO
from shared.metrics import CONTENT_TYPE, Registry
from shared.paths import LIVE, METRICS, READY
from shared.settings import SidePortSettings
from shared.variables import METRICS_PORT

AT_ONCE: Final = 8
"""Connections that are answered at a time."""
BACKLOG: Final = 128
"""Connections that the system holds meanwhile."""
STALL_S: Final = 5.0
"""How long a client may take to say what it wants, or to take what it is told."""
HUSH_S: Final = 0.05
"""How long one may say nothing, or not take what it is told, before it has to make room."""
PLACE_S: Final = 2.0
"""How long one more waits for room."""
LOOK_S: Final = 0.01
"""Between two looks for somebody who has to make it."""

SHORT_S: Final = 0.2
"""Between two tries to take a connection where one failed."""

NOWHERE: Final = CODES["route_not_found"].status

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered at one path."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Page]]


def pages(
    registry: Registry,
    *,
    live: Callable[[], bool],
    ready: Callable[[], bool],
    further: Callable[[], Iterable[Metric]] = tuple,
) -> Pages:
    """What scrapers and probes ask for."""
    return {
        METRICS: lambda: Page(200, registry.exposition(further()), CONTENT_TYPE),
        LIVE: lambda: _verdict(live(), "live", "dead"),
        READY: lambda: _verdict(ready(), "ready", "not_ready"),
    }


def _verdict(holds: bool, yes: str, no: str) -> Page:
    return Page(200, f"{yes}\n".encode()) if holds else Page(PROBE_NO, f"{no}\n".encode())


@contextmanager
def side_port(settings: SidePortSettings, served: Pages) -> Iterator[int]:
    """Answer until the block ends; yields the port, 0 when there is none to be.

    Raises SettingsError when the port can't be had.
    """
    if not settings.port:
        yield 0
        return
    try:
        server = _Server(settings.host, settings.port, served)
    except OSError as error:
        takes = f"a port that can be had on {settings.host} ({error.strerror})"
        raise SettingsError(METRICS_PORT, takes) from error
    thread = threading.Thread(target=server.serve_forever, name="side-port", daemon=True)
    thread.start()
    log.info("side_port_listening", host=settings.host, port=server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Places:
    """``AT_ONCE`` connections, and since when those of them that do wait for their client."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._waiting: dict[socket, float] = {}

    def take(self, connection: socket) -> bool:
        """Whether there is one for it, if need be that of whoever kept us waiting the longest."""
        if not self._free.acquire(blocking=False) and not self._come_free():
            return False
        self.waits(connection)
        return True

    def waits(self, connection: socket) -> None:
        """It is its client's turn now."""
        with self._lock:
            self._waiting[connection] = time.monotonic()

    def works(self, connection: socket) -> None:
        """It has been asked for a page, and isn't let go while that is made."""
        with self._lock:
            self._waiting.pop(connection, None)

    def give_back(self, connection: socket) -> None:
        self.works(connection)
        self._free.release()

    def _come_free(self) -> bool:
        give_up_at = time.monotonic() + PLACE_S
        while time.monotonic() < give_up_at:
            self._let_go()
            if self._free.acquire(timeout=LOOK_S):
                return True
        return False

    def _let_go(self) -> None:
        """Of one connection, whose thread hears of it and gives its place back."""
        with self._lock:
            oldest = next(iter(self._waiting), None)
            if oldest is not None and time.monotonic() - self._waiting[oldest] > HUSH_S:
                del self._waiting[oldest]
                with suppress(OSError):  # it has gone by itself
                    oldest.shutdown(SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, host: str, port: int, served: Pages) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.served = served
        self._is_short = False
        self.places = _Places()
        super().__init__((host, port), _Answer)

    def get_request(self) -> tuple[socket, Any]:
        """Raises OSError, after a pause: a connection that can't be taken for want of files stays
        there to be taken, and the loop would ask again at once and for ever.
        """
        try:
            taken = super().get_request()
        except ConnectionError:  # left before it was taken
            raise
        except OSError as error:
            if not self._is_short:
                log.error("side_port_short", error=error.strerror)
            self._is_short = True
            time.sleep(SHORT_S)
            raise
        self._is_short = False
        return taken

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.places.take(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except (RuntimeError, MemoryError):  # no thread could be started
            self.places.give_back(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.give_back(request)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            log.error("side_port_failed", exc_info=True)


class _Answer(BaseHTTPRequestHandler):
    timeout = STALL_S
    server: _Server

    def do_GET(self) -> None:
        page = self.server.served.get(self.path.partition("?")[0])
        self.server.places.works(self.request)
        answer = page() if page else Page(NOWHERE, b"there is nothing at this path\n")
        self.server.places.waits(self.request)
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Who looks is no news."""
