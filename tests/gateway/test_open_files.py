"""How many connections a gateway takes, by the files that it may open."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.open_files import OTHERS, Places, places_for
from shared.environment import SettingsError
from shared.paths import LIVE
from tests.conftest import wait_until
from tests.gateway.processes import process_in
from tests.gateway.world import gateway_settings


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of files, without a system behind them."""
    held = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: held.__setitem__(slice(2), both))
    return held


def test_the_limit_is_raised_as_far_as_it_is_needed(limits: list[int]) -> None:
    """Twice the open requests, and no further; what the system set higher stays."""
    assert places_for(1000).most == 2000
    assert limits == [2000 + OTHERS, 4096]
    assert places_for(10).most == 2000


def test_the_hard_limit_is_the_most(limits: list[int]) -> None:
    """Where it doesn't allow twice as many, it is what there is; unlimited is what is needed."""
    assert places_for(3000).most == 4096 - OTHERS
    limits[:] = [1024, resource.RLIM_INFINITY]
    assert places_for(100_000).most == 200_000
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    assert places_for(10).most == 20


def test_more_requests_than_files_are_no_setting(limits: list[int]) -> None:
    """The process stops with the setting's name, the most that it takes here, and why."""
    limits[:] = [64, 1024]

    with pytest.raises(SettingsError, match=r"MAX_CONNECTIONS: takes at most 896 .*1024 files"):
        places_for(2048)


def test_a_full_gateway_is_told_once_until_there_is_room_again() -> None:
    """One line in the log for a crowd, and another only after half of it has gone."""
    places = Places(4)
    with capture_logs() as lines:
        room = [places.has_room(count) for count in (3, 4, 5, 6, 4, 5, 2, 5)]

    assert room == [True, True, False, False, True, False, True, False]
    assert [line["event"] for line in lines] == ["connections_full"] * 2


def test_the_settings_of_a_default_gateway_fit_here() -> None:
    """On the machine that runs the tests, too."""
    assert places_for(gateway_settings().max_connections).most >= 2048


@contextmanager
def few_files() -> Iterator[None]:
    """What is started inside may open only so many files, as long as it doesn't ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OTHERS + 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.redis
def test_a_connection_too_many_hears_a_code(tmp_path: Path) -> None:
    """A crowd of idle connections takes all places of a process with few files: one more is told
    so at once, those inside are served, and the room that they leave is room.
    """
    with ExitStack() as opened, ExitStack() as crowd:
        with few_files():
            started = process_in(tmp_path, PSIONIC_CSM_MAX_CONNECTIONS="1")
            process = opened.enter_context(started)
        assert process.http.get(LIVE).status_code == 200  # and its connection is kept
        address = process.http.base_url.host, process.http.base_url.port or 0
        *_, last = [crowd.enter_context(create_connection(address)) for _ in range(60)]
        said = json.loads(last.recv(4096).partition(b"\r\n\r\n")[2])

        assert said["error"]["code"] == "too_many_waiting"
        assert last.recv(1) == b""
        assert process.http.get(LIVE).status_code == 200
        crowd.close()
        wait_until(lambda: httpx.get(f"http://{address[0]}:{address[1]}{LIVE}").status_code == 200)
        assert [line["event"] for line in process.lines].count("connections_full") == 1
