"""Cores: what a container or an affinity takes away is not shared out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.cores import threads_per_worker, usable_cores
from shared.settings import WorkerSettings


def test_a_worker_alone_takes_its_share_of_what_may_be_used() -> None:
    """The default number of torch's threads follows the usable cores, not those of the host."""
    assert WorkerSettings.from_env({}).torch_threads == threads_per_worker(1)


@pytest.mark.parametrize(
    ("workers", "cores", "threads"), [(1, 2, 1), (1, 16, 8), (2, 16, 4), (9, 16, 1), (64, 1, 1)]
)
def test_workers_share_the_cores(workers: int, cores: int, threads: int) -> None:
    """Half of the cores are shared out, and no worker gets less than one thread."""
    assert threads_per_worker(workers, cores) == threads


@pytest.mark.parametrize(("text", "most"), [("100000 100000", 1), ("50000 100000", 1)])
def test_a_container_s_quota_counts(tmp_path: Path, text: str, most: int) -> None:
    """A quota below the machine's cores is what may be used."""
    quota = tmp_path / "cpu.max"
    quota.write_text(text)

    assert usable_cores(quota) == most


@pytest.mark.parametrize("text", ["max 100000", "", "nonsense"])
def test_no_quota_leaves_the_machine_s_cores(tmp_path: Path, text: str) -> None:
    """Without a readable quota the affinity of the process decides."""
    quota = tmp_path / "cpu.max"
    quota.write_text(text)

    assert usable_cores(quota) == usable_cores(tmp_path / "absent") >= 1
