"""The demo that comes with the package is installed; without one the seeded demo is built."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli import demo
from cli.exits import NOT_STARTED, CommandFailed
from gpu_worker.model.demo import build_demo
from shared.governance.artifacts import Artifact, load_artifact


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """A small artifact that stands where the package keeps the trained one."""
    artifact = build_demo(tmp_path / "package" / "spoken_demo", "tiny")
    monkeypatch.setattr(demo, "spoken_demo_dir", lambda: artifact.directory)
    return artifact


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PSIONIC_CSM_CACHE": str(tmp_path / "cache")}


def test_what_came_with_the_package_is_installed_once(
    shipped: Artifact, environment: dict[str, str]
) -> None:
    """The same files under the user's cache; a second time there is nothing to do or to say."""
    said: list[str] = []

    first = demo.at_hand(said.append, environment)
    times = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    second = demo.at_hand(said.append, environment)

    assert said == ["installing the demo artifact"]
    assert first == second
    assert load_artifact(first).manifest == shipped.manifest
    assert {path: path.stat().st_mtime_ns for path in second.rglob("*")} == times


def test_a_damaged_or_former_demo_is_replaced(
    shipped: Artifact, environment: dict[str, str]
) -> None:
    """A changed file, and the demo of another version of the package, give way."""
    said: list[str] = []
    installed = demo.at_hand(said.append, environment)
    weights = installed / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(b"\x00" + whole[1:])
    demo.at_hand(said.append, environment)
    assert weights.read_bytes() == whole

    shutil.rmtree(installed)
    build_demo(installed)
    demo.at_hand(said.append, environment)

    assert load_artifact(installed).manifest == shipped.manifest
    assert said[1:] == ["installing the demo artifact again"] * 2


def test_a_damaged_package_installs_nothing(
    shipped: Artifact, environment: dict[str, str], tmp_path: Path
) -> None:
    """Digests are checked as it is installed; what fails leaves no directory behind."""
    weights = shipped.directory / "model.safetensors"
    weights.write_bytes(b"\x00" + weights.read_bytes()[1:])

    with pytest.raises(CommandFailed, match="is damaged") as caught:
        demo.at_hand(lambda _: None, environment)

    assert caught.value.exit_code == NOT_STARTED
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.usefixtures("shipped")
def test_one_that_is_there_whole_needs_no_right_to_write(environment: dict[str, str]) -> None:
    """Another user's, or a read-only one: nothing is written beside it, not even a lock."""
    directory = demo.at_hand(lambda _: None, environment)
    lock = directory.parent / f".{directory.name}.lock"
    lock.unlink()

    demo.put(directory)

    assert not lock.exists()


@pytest.mark.usefixtures("shipped")
def test_a_full_disk_is_told_in_one_line(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where, why, and the setting that names another place; nothing half is left there."""

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copy", full)

    with pytest.raises(CommandFailed) as caught:
        demo.at_hand(lambda _: None, environment)

    failed = caught.value
    directory = demo.default_dir(False, environment)
    assert failed.exit_code == NOT_STARTED
    assert failed.message == f"can't put the demo artifact in {directory}: No space left on device"
    assert "PSIONIC_CSM_CACHE" in (failed.hint or "")
    left = {path.name for path in (tmp_path / "cache").rglob("*")}
    assert left == {"artifacts", ".csm-demo.lock"}


def test_a_damaged_manifest_is_named(shipped: Artifact, environment: dict[str, str]) -> None:
    """A manifest that can't be read is a damaged package, not a traceback."""
    demo.at_hand(lambda _: None, environment)
    (shipped.directory / "manifest.json").write_text("{")

    with pytest.raises(CommandFailed, match="is damaged"):
        demo.at_hand(lambda _: None, environment)


@pytest.mark.usefixtures("shipped")
def test_installing_needs_no_torch(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are copied: the worker's packages are not asked for."""
    monkeypatch.setitem(sys.modules, "gpu_worker.model.demo", None)

    assert (demo.at_hand(lambda _: None, environment) / "manifest.json").is_file()


def test_the_seeded_demo_is_had_by_name(shipped: Artifact, tmp_path: Path) -> None:
    """``--seeded`` builds the one that speaks noise, in a place of its own."""
    environment = {"PSIONIC_CSM_CACHE": str(tmp_path / "cache")}
    directory = demo.default_dir(True, environment)

    artifact = demo.put(directory, seeded=True)

    assert artifact.manifest.model_id == "psionic-demo/csm-tiny"
    assert directory != demo.default_dir(False, environment)
    assert artifact.manifest.model_id != shipped.manifest.model_id


def test_something_else_is_never_overwritten(shipped: Artifact, tmp_path: Path) -> None:
    """A directory with anything but a demo in it is left alone, and the way out is said."""
    assert shipped.directory.is_dir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("precious")

    with pytest.raises(CommandFailed, match="something else"):
        demo.put(tmp_path / "mine")

    assert (tmp_path / "mine" / "precious").read_text() == "precious"


def test_a_demo_is_mended_by_what_makes_this_very_one(shipped: Artifact, tmp_path: Path) -> None:
    """The command replaces what is there, so for each demo it is the one that gives the same id;
    for one that was trained elsewhere there is none.
    """
    place = tmp_path / "a place"
    copy = Path(shutil.copytree(shipped.directory, place))
    seeded = build_demo(tmp_path / "seeded")
    elsewhere = replace(
        seeded, manifest=seeded.manifest.model_copy(update={"model_id": "psionic-demo/other"})
    )

    ways = [demo.way_to_put_back(each) for each in (load_artifact(copy), seeded, elsewhere)]

    assert ways[0] == f"psionic-csm artifacts build-demo --directory '{place}'"
    assert f"--seeded --directory {seeded.directory}" in ways[1]
    assert "build-demo" not in ways[2]
