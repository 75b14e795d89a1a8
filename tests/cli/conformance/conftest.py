"""One honest gateway for all checks, and a run that is held to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.client import GatewayClient
from cli.conformance.plan import DISABLED, PLANS, SERVING
from cli.conformance.report import Verdict
from cli.conformance.run import Run
from cli.conformance.wire import Wire
from cli.smoke import verdict_on
from tests.cli.conformance.liar import Liar, Lie, truth
from tests.gateway.served import served
from tests.gateway.world import gateway_settings

KEY = "sk-smoke-0123456789abcdef"
BREATH_S = 0.02
PATIENCE_S = 20.0


@dataclass
class Deployment:
    """A gateway that may be made to lie."""

    client: GatewayClient
    liar: Liar
    expect: str = SERVING
    api_key: str | None = None

    def check(
        self,
        name: str,
        lie: Lie = truth,
        *,
        live: str | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Verdict:
        """How one check ends, all by itself, while this lie is told."""
        found = next(check for check in PLANS[self.expect] if check.name == name)
        self.liar.lie, self.liar.live = lie, live
        try:
            return verdict_on(found, Run(Wire(self.client, timeout_s), self.api_key))
        finally:
            self.liar.lie = truth


@contextmanager
def deployed(directory: Path, expect: str = SERVING, **how: Any) -> Iterator[Deployment]:
    api_key = how.pop("api_key", None)
    settings = gateway_settings({"PSIONIC_CSM_API_KEYS": api_key or ""})
    liar = Liar()
    with (
        served(directory, settings, wrapped=liar.wrap, breath_s=BREATH_S, **how) as service,
        GatewayClient(service.url, api_key=api_key) as client,
    ):
        yield Deployment(client, liar, expect, api_key)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("serving")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment that asks for a key."""
    with deployed(tmp_path_factory.mktemp("locked"), api_key=KEY) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def disabled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A gateway of which nobody takes a job."""
    directory = tmp_path_factory.mktemp("disabled")
    with deployed(directory, DISABLED, has_worker=False) as deployment:
        yield deployment
