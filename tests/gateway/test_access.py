"""The access log: a line per request, and which of them nobody wants to read every second."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.gateway.world import SPEECH, World


async def lines(world: World, method: str, path: str, body: Any = None) -> list[tuple[str, int]]:
    """Level and status of each access line of one request."""
    with capture_logs() as heard:
        await world.call(method, path, body).answer()
    return [(line["log_level"], line["status"]) for line in heard if line["event"] == "request"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200),
        ("/health/live", 200),
        ("/health/ready", 503),
        ("/psionic/csm/load", 200),
        ("/psionic/csm/worker/metadata", 200),
    ],
)
async def test_what_is_polled_is_quiet(world: World, path: str, status: int) -> None:
    """Probes and pollers leave their lines at debug level, whatever they are answered."""
    world.gateway.drain()

    assert await lines(world, "GET", path) == [("debug", status)]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", SPEECH, 422),
        ("GET", "/v1/models", 200),
        ("GET", SPEECH + "/nobody", 404),
        ("POST", "/health", 405),
        ("GET", "/healthy", 404),
    ],
)
async def test_everything_else_is_told(world: World, method: str, path: str, status: int) -> None:
    """Each other request has its line at info level."""
    assert await lines(world, method, path, {}) == [("info", status)]
