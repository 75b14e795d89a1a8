"""``psionic-csm up`` before there is a stack: how it ends, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from cli import main, up
from cli.exits import NOT_STARTED, OK
from cli.signals import Interrupted


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
