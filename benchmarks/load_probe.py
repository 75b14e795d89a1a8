"""Loads an artifact as a worker does, in a process of its own, and says what that took.

    python -m benchmarks.load_probe <directory> <dtype> <lanes> <threads>

A process of its own because a process's peak memory never falls again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from benchmarks.machine import peak_rss_bytes
from benchmarks.records import Loading
from shared.governance.artifacts import Artifact

ROOT = Path(__file__).resolve().parent.parent


class ProbeFailed(Exception):
    """The process that was to load did not; the message is the end of what it said."""


def loading(artifact: Artifact, dtype: str, lanes: int, threads: int) -> Loading:
    """Start a process that loads. ``dtype`` is bfloat16 or float32. Raises ProbeFailed."""
    arguments = (str(artifact.directory), dtype, str(lanes), str(threads))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_probe", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProbeFailed("\n".join(done.stderr.strip().splitlines()[-5:]))
    return Loading(**json.loads(done.stdout.splitlines()[-1]))


def probe(directory: Path, dtype: str, lanes: int, threads: int) -> Loading:
    """Load in this process."""
    from gpu_worker.backend import CPU
    from gpu_worker.loading import load
    from shared.governance.artifacts import load_artifact
    from shared.settings import WorkerSettings

    settings = replace(WorkerSettings.from_env({}), lanes=lanes, torch_threads=threads, dtype=dtype)
    entries = load_artifact(directory).manifest.files.values()
    base, read_before = int(psutil.Process().memory_info().rss), _read_bytes()
    began = time.perf_counter()
    loaded = load(settings, directory, CPU)
    return Loading(
        seconds=time.perf_counter() - began,
        base_rss_bytes=base,
        peak_rss_bytes=peak_rss_bytes(),
        kept_bytes=loaded.memory_required_bytes,
        file_bytes=sum(entry.bytes or 0 for entry in entries),
        read_bytes=_read_bytes() - read_before,
        dtype=loaded.determinism_class.split("/")[2],
    )


def _read_bytes() -> int:
    """Bytes that this process asked for in read calls so far; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)


if __name__ == "__main__":
    folder, kind, count, cores = sys.argv[1:]
    print(json.dumps(asdict(probe(Path(folder), kind, int(count), int(cores)))))
