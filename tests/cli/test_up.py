"""``psionic-csm up`` before there is a stack: how it ends, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cli import main, up
from cli.artifacts import open_artifact
from cli.client import GatewayClient
from cli.exits import NOT_STARTED, OK
from cli.logs import LogStream
from cli.signals import Interrupted, Signals
from cli.stack import Stack
from cli.stack_plan import StackPlan
from shared.messages import READY
from tests.gateway.artifacts import write_artifact


def test_ctrl_c_while_the_demo_is_built_is_a_good_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is how up ends, at whatever moment: exit code 0, as its help says."""

    def interrupted(*_: Any) -> None:
        raise Interrupted(2)

    monkeypatch.setattr(up, "chosen_or_demo", interrupted)

    assert main.run(["up"]) == OK
    assert "stopped" in capsys.readouterr().out


def test_a_misspelt_setting_stops_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that nothing reads is told with the one that was meant, before anything starts."""
    monkeypatch.setenv("PSIONIC_CSM_LANEZ", "2")

    assert main.run(["up"]) == NOT_STARTED
    assert "did you mean PSIONIC_CSM_LANES?" in capsys.readouterr().err


def test_a_stack_that_isn_t_alone_says_so(tmp_path: Path) -> None:
    """Two of them on one Redis and namespace serve together, maybe by mistake. Lanes that serve
    another artifact are none of this one's.
    """
    plan = StackPlan(write_artifact(tmp_path / "artifact").directory)
    stack = Stack(plan, LogStream(None), Signals(), {})
    stack.urls, stack.namespace = ("http://127.0.0.1:1",), "csm"
    own = {"state": READY, "lanes": 2, "artifact_id": open_artifact(plan.artifact).artifact_id}
    client = Mock(GatewayClient)
    client.metadata.return_value = {"workers": [own, {**own, "lanes": 4, "artifact_id": "b"}]}
    said: list[str] = []

    up._announce(stack, client, said.append)

    assert said[0] == "shared     with 1 more workers on this Redis, in namespace csm"
    assert " with 2 lanes;" in said[1]
