"""The small port of processes that serve no callers: scrapes, probes, and nothing else."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import BadStatusLine, HTTPConnection

import pytest
from structlog.testing import capture_logs

from cli.redis_server import free_port
from scheduler.__main__ import LATE_MS, Rounds
from scheduler.side_port import AT_ONCE, SHORT_S, Page, pages, side_port
from shared.environment import SettingsError
from shared.metrics import CONTENT_TYPE, Registry
from shared.settings import SidePortSettings
from tests.conftest import RedisServer, until, wait_until
from tests.exposition import samples

HOST = "127.0.0.1"


class Health:
    live = ready = True


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    registry = Registry()
    registry.counter("tries_total", "tries").inc()
    answers = pages(registry, live=lambda: health.live, ready=lambda: health.ready)
    with side_port(SidePortSettings(HOST, free_port()), answers) as port:
        yield port


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    with closing(HTTPConnection(HOST, port, timeout=10)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type", ""), answer.read()


def test_a_scraper_is_told(port: int) -> None:
    """The registry in Prometheus's text form, and what the system knows of the process."""
    status, content_type, body = ask(port, "/metrics")

    assert (status, content_type) == (200, CONTENT_TYPE)
    heard = samples(body)
    assert heard["psionic_csm_tries_total",] == 1
    assert heard["process_resident_memory_bytes",] > 0


def test_probes_are_told(port: int, health: Health) -> None:
    """Alive and ready are asked for at each probe."""
    before = [ask(port, path)[0] for path in ("/health/live", "/health/ready")]
    health.live = health.ready = False
    after = [ask(port, path)[0] for path in ("/health/live", "/health/ready")]

    assert (before, after) == ([200, 200], [503, 503])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 501)],
)
def test_nothing_else_is_there(port: int, method: str, path: str, status: int) -> None:
    """No other path and no other method."""
    assert ask(port, path, method)[0] == status


def answering() -> int:
    """Threads that have a client."""
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nhost: h\r\n"])
def test_who_asks_is_answered_beside_a_crowd_that_does_not(port: int, said: bytes) -> None:
    """Clients that hold connections get only so many threads, and keep no probe from its answer:
    whoever has said nothing the longest is let go for who comes.
    """
    with ExitStack() as crowd:
        held: list[socket.socket] = []
        for _ in range(5 * AT_ONCE):
            held.append(crowd.enter_context(socket.create_connection((HOST, port), timeout=10)))
            held[-1].sendall(said)

        told = [ask(port, path)[0] for path in ("/health/live", "/health/ready", "/metrics")]

        assert told == [200] * 3
        assert held[0].recv(1) == b""
        assert answering() <= AT_ONCE


def test_clients_that_leave_as_they_like_are_no_defect(port: int) -> None:
    """A reset at any byte of what is asked or told: the log is silent, and the next is answered."""
    asked = b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n"
    with capture_logs() as lines:
        for number in range(200):
            client = socket.create_connection((HOST, port), timeout=10)
            client.sendall(asked[: number % (len(asked) + 1)])
            if number % 3 == 0:
                client.shutdown(socket.SHUT_WR)
            if number % (4 * (len(asked) + 1)) == len(asked):
                client.recv(1)
            (reset if number % 2 else socket.socket.close)(client)

        assert ask(port, "/health/live")[0] == 200
    assert lines == []


def test_who_left_before_it_was_taken_is_no_shortage(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems tell of such a client: nothing is logged, and the next is answered at once."""
    accept = socketserver.TCPServer.get_request
    gone = iter([True] * 20)

    def accepted(server: socketserver.TCPServer) -> object:
        taken = accept(server)
        if next(gone, False):
            taken[0].close()
            raise ConnectionAbortedError
        return taken

    monkeypatch.setattr(socketserver.TCPServer, "get_request", accepted)
    with capture_logs() as lines:
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises((ConnectionError, BadStatusLine)):
                ask(port, "/health/live")

        assert ask(port, "/health/live")[0] == 200
    assert time.monotonic() - began < 20 * SHORT_S
    assert lines == []


def test_a_client_that_takes_nothing_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is let go after a while, and the log is silent."""
    monkeypatch.setattr("scheduler.side_port._Answer.timeout", 0.1)
    much = {"/much": lambda: Page(200, bytes(16 << 20)), "/live": lambda: Page(200, b"")}
    settings = SidePortSettings(HOST, free_port())
    with side_port(settings, much) as port, capture_logs() as lines, ExitStack() as crowd:
        for _ in range(AT_ONCE + 1):
            client = crowd.enter_context(socket.create_connection((HOST, port), timeout=10))
            client.sendall(b"GET /much HTTP/1.0\r\n\r\n")

        assert ask(port, "/live")[0] == 200
        wait_until(lambda: answering() == 0)
        assert lines == []


def test_while_pages_are_made_others_wait_their_turn() -> None:
    """A crowd that asks for what takes a moment is answered whole."""

    def slowly() -> Page:
        time.sleep(0.02)
        return Page(200, b"")

    settings = SidePortSettings(HOST, free_port())
    with side_port(settings, {"/slow": slowly}) as port, ThreadPoolExecutor(40) as callers:
        told = list(callers.map(lambda _: ask(port, "/slow")[0], range(80)))

    assert told == [200] * 80


@pytest.fixture
def files() -> Iterator[Callable[[int], None]]:
    """Says how many files this process may open; 0: as many as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda count: resource.setrlimit(resource.RLIMIT_NOFILE, (count or soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_files_it_waits_for_some(port: int, files: Callable[[int], None]) -> None:
    """A connection that can't be taken costs no processor, is told once in the log, and is answered
    as soon as a file is to be had.
    """
    with socket.socket() as client, capture_logs() as lines:
        client.settimeout(10)
        files(3)
        client.connect((HOST, port))
        client.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        began = time.process_time()
        while not lines:
            time.sleep(0.01)
        time.sleep(0.5)
        spent_s = time.process_time() - began
        files(0)

        assert client.recv(100).startswith(b"HTTP/1.0 200 ")
    assert spent_s < 0.25
    assert [line["event"] for line in lines] == ["side_port_short"]


def test_a_place_is_given_back_where_no_thread_could_be_started(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than there are places fail so, and then one is answered."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", start)
        for _ in range(AT_ONCE + 1):
            with socket.create_connection((HOST, port), timeout=10) as client:
                assert client.recv(1) == b""

    assert ask(port, "/health/live")[0] == 200


def test_a_port_that_is_taken_stops_the_start() -> None:
    """The setting is named, since several processes of one host need several ports."""
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        settings = SidePortSettings(HOST, other.getsockname()[1])
        with (
            pytest.raises(SettingsError, match="PSIONIC_CSM_METRICS_PORT"),
            side_port(settings, {}),
        ):
            pass


def test_port_0_is_no_port() -> None:
    """Nothing listens unless asked to."""
    with side_port(SidePortSettings(HOST, 0), {}) as port:
        assert port == 0


def test_a_scheduler_is_ready_while_its_rounds_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the first, nor after one that failed, nor long after the last: that one hangs."""
    now_ms = [1e6]
    monkeypatch.setattr("shared.clock.monotonic_ms", lambda: now_ms[0])
    rounds = Rounds(1000)
    ready = [rounds.is_ready]
    for done in (True, False, True):
        rounds.gone(done)
        ready.append(rounds.is_ready)
    now_ms[0] += LATE_MS + 2001

    assert ready == [False, True, False, True]
    assert (rounds.is_ready, rounds.is_live) == (False, True)


def start_scheduler(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scheduler"], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.redis
async def test_the_scheduler_serves_the_queues_metrics(redis_server: RedisServer) -> None:
    """The process answers scrapers and probes, tells when Redis goes or takes no writes, though
    nobody has anything to write, and lives on.
    """
    port = free_port()
    environment = {
        **os.environ,
        "PSIONIC_CSM_REDIS_URL": redis_server.url,
        "PSIONIC_CSM_METRICS_PORT": str(port),
        "PSIONIC_CSM_REAP_INTERVAL_MS": "50",
    }
    process = start_scheduler(environment)
    assert process.stdout is not None
    try:
        lines = (json.loads(line) for line in process.stdout)
        assert (
            next(line for line in lines if line["event"] == "side_port_listening")["port"] == port
        )
        await until(lambda: ask(port, "/health/ready")[0] == 200)
        assert samples(ask(port, "/metrics")[2])["psionic_csm_redis_up",] == 1

        with redis_server.client() as redis:
            redis.config_set("min-replicas-to-write", 1)  # it answers, and takes no writes
            await until(lambda: ask(port, "/health/ready")[0] == 503)
            redis.config_set("min-replicas-to-write", 0)
        await until(lambda: ask(port, "/health/ready")[0] == 200)

        redis_server.stop(kill=True)
        await until(lambda: ask(port, "/health/ready")[0] == 503)
        assert samples(ask(port, "/metrics")[2])["psionic_csm_redis_up",] == 0
        assert ask(port, "/health/live")[0] == 200

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
