"""The real worker, its books, leases and signals, over an engine that computes nothing.

    python -m benchmarks.paced_worker --lanes 32 --step-ms 80

Settings as for ``python -m gpu_worker``; of the artifact only the manifest is read. Loads no torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.paced import PacedRuntime
from gpu_worker.heartbeat import ServedArtifact
from gpu_worker.metrics import WorkerMetrics
from gpu_worker.process import serve
from shared.environment import BAD_SETTING, SettingsError
from shared.errors import SpeechError
from shared.governance.artifacts import load_artifact
from shared.logging import configure_logging
from shared.settings import WorkerSettings
from shared.variables import ARTIFACTS

LANES = 32
STEP_MS = 80.0


def run(settings: WorkerSettings, lanes: int, step_ms: float) -> int:
    """Serve until told to stop; the exit code. Raises SettingsError or SpeechError at the start."""
    if settings.artifact_dir is None:
        raise SettingsError(ARTIFACTS, "the directory of the artifact to serve")
    served = ServedArtifact.of(load_artifact(settings.artifact_dir), settings.queue.namespace)
    runtime = PacedRuntime(lanes, step_ms, settings.backend)
    return serve(settings, served, runtime, WorkerMetrics())


def main(arguments: Sequence[str] | None = None) -> int:
    """As ``python -m gpu_worker``, whose exit codes it shares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paced_worker")
    parser.add_argument("--lanes", type=int, help=f"default: PSIONIC_CSM_LANES, else {LANES}")
    parser.add_argument("--step-ms", type=float, default=STEP_MS, help="0: without a pause")
    given = parser.parse_args(arguments)
    try:
        settings = WorkerSettings.from_env()
        configure_logging("worker", settings.log_level)
        return run(settings, given.lanes or settings.lanes or LANES, given.step_ms)
    except (SettingsError, SpeechError) as error:
        print(error, file=sys.stderr)
        return BAD_SETTING


if __name__ == "__main__":
    sys.exit(main())
