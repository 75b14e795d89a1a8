"""``python -m gpu_worker``: one worker process for the artifact of ``PSIONIC_CSM_ARTIFACTS``."""

from __future__ import annotations

import sys

import structlog

from gpu_worker.heartbeat import Served
from gpu_worker.metrics import WorkerMetrics
from gpu_worker.runtime import Runtime
from gpu_worker.signals import StopSignals
from gpu_worker.worker import Worker
from scheduler.connections import connect
from scheduler.side_port import pages, side_port
from shared.environment import SettingsError
from shared.errors import SpeechError
from shared.governance.artifacts import load_artifact
from shared.logging import configure_logging
from shared.settings import WorkerSettings
from shared.tracing import open_spans
from shared.variables import ARTIFACTS

BAD_SETTING = 2

log = structlog.get_logger()


def serve(settings: WorkerSettings) -> int:
    """Run until told to stop; the exit code. Raises SettingsError without an artifact directory."""
    directory = settings.artifact_dir
    if directory is None:
        raise SettingsError(ARTIFACTS, "the directory of the artifact to serve")
    namespace = settings.queue.namespace
    try:
        artifact = load_artifact(directory)
        served = Served(artifact.artifact_id, artifact.digest, artifact.queue_name(namespace))
    except SpeechError as error:
        # The runtime meets the same error and explains it for as long as the process lives.
        log.error("artifact_unreadable", code=error.code, reason=error.message)
        served = Served()
    spans = open_spans("worker", settings.otlp_endpoint, {"namespace": namespace})
    signals = StopSignals()
    signals.install()
    metrics = WorkerMetrics()
    runtime = Runtime(settings, directory, metrics.step)
    redis = connect(settings.queue.redis_url)
    worker = Worker(settings, served, runtime, redis, signals, metrics, spans)
    served_pages = pages(
        metrics.registry, live=lambda: worker.is_live, ready=lambda: worker.is_ready
    )
    with side_port(settings.metrics, served_pages):
        return worker.run()


def main() -> int:
    try:
        settings = WorkerSettings.from_env()
        configure_logging("worker", settings.log_level)
        return serve(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_SETTING


if __name__ == "__main__":
    sys.exit(main())
