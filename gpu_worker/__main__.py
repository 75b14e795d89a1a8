"""``python -m gpu_worker``: one worker process for the artifact of ``PSIONIC_CSM_ARTIFACTS``."""

from __future__ import annotations

import sys

import structlog

from gpu_worker.heartbeat import ServedArtifact
from gpu_worker.metrics import WorkerMetrics
from gpu_worker.process import serve
from gpu_worker.runtime import Runtime
from shared.environment import BAD_SETTING, SettingsError
from shared.errors import SpeechError
from shared.governance.artifacts import load_artifact
from shared.logging import configure_logging
from shared.settings import WorkerSettings
from shared.variables import ARTIFACTS

log = structlog.get_logger()


def run(settings: WorkerSettings) -> int:
    """Serve until told to stop; the exit code. Raises SettingsError where no artifact is named."""
    directory = settings.artifact_dir
    if directory is None:
        raise SettingsError(ARTIFACTS, "the directory of the artifact to serve")
    try:
        served = ServedArtifact.of(load_artifact(directory), settings.queue.namespace)
    except SpeechError as error:
        # The runtime meets the same error and explains it for as long as the process lives.
        log.error(
            "artifact_unreadable",
            code=error.code,
            reason=error.message,
            directory=str(directory),
        )
        served = ServedArtifact()
    metrics = WorkerMetrics()
    return serve(settings, served, Runtime(settings, directory, metrics.step), metrics)


def main() -> int:
    try:
        settings = WorkerSettings.from_env()
        configure_logging("worker", settings.log_level)
        return run(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_SETTING


if __name__ == "__main__":
    sys.exit(main())
