"""The units for systemd: what it says of them, and that they run and stop our processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.__main__ import LAST_WORDS_S
from gpu_worker.worker import CLOSE_S
from shared.settings import GatewaySettings

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


def settings(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.M):
        found.setdefault(name, []).append(value)
    return found


def test_there_is_a_unit_for_each_process() -> None:
    """Scheduler, gateway and workers; Redis has one of its distribution."""
    started = {settings(unit)["ExecStart"][0].split("-m ")[1] for unit in UNITS}

    assert started == {"scheduler", "gateway", "gpu_worker"}
    assert all((ROOT / module / "__main__.py").exists() for module in started)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_object(unit: Path, tmp_path: Path) -> None:
    """Every line is one that it knows, with a value that it takes."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    copy = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8")
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.M))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_have_few_rights_and_time_to_stop(unit: Path) -> None:
    """No root, no capability, a bound on memory, and a stop that is longer than a drain."""
    told = settings(unit)
    drain = GatewaySettings.from_env({}).drain_grace_ms / 1000

    assert told["DynamicUser"] == ["yes"]
    assert told["CapabilityBoundingSet"] == [""]
    assert told["NoNewPrivileges"] == ["yes"]
    assert told["ProtectSystem"] == ["strict"]
    assert told["MemoryMax"]
    assert int(told["TimeoutStopSec"][0]) >= drain + max(CLOSE_S, 2 * LAST_WORDS_S) + 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_ends_is_started_again_but_not_for_a_wrong_setting(unit: Path) -> None:
    """Exit code 2 is a setting or artifact that can't be used: a restart would not help."""
    told = settings(unit)

    assert told["Restart"] == ["always"]
    assert told["RestartPreventExitStatus"] == ["2"]


def test_a_worker_s_unit_lets_it_have_its_gpu() -> None:
    """Neither of the two settings that hide devices is on."""
    worker = next(unit for unit in UNITS if "worker" in unit.name)

    assert settings(worker)["PrivateDevices"] == ["no"]
    assert "ProtectClock" not in settings(worker)


def test_a_worker_s_gpu_is_there_after_a_boot() -> None:
    """What CUDA would do as root is done before: the worker has no new privileges. A host without
    a GPU has neither program, and starts its worker all the same.
    """
    worker = settings(next(unit for unit in UNITS if "worker" in unit.name))

    assert worker["NoNewPrivileges"] == ["yes"]
    assert [line.split()[0].rpartition("/")[2] for line in worker["ExecStartPre"]] == [
        "nvidia-smi",
        "nvidia-modprobe",
    ]
    assert all(line.startswith("-+") for line in worker["ExecStartPre"])
