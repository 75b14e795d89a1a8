"""One worker process round a runtime: its signals, its Redis, its spans, the port of scrapers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpu_worker.generation import SpeechRuntime
from gpu_worker.metrics import WorkerMetrics
from gpu_worker.signals import StopSignals
from gpu_worker.worker import Worker
from scheduler.connections import connect
from scheduler.side_port import pages, side_port
from shared.output import settle
from shared.signals import say_where_on_request
from shared.tracing import open_spans

if TYPE_CHECKING:
    from gpu_worker.heartbeat import ServedArtifact
    from shared.settings import WorkerSettings


def serve(
    settings: WorkerSettings, served: ServedArtifact, runtime: SpeechRuntime, metrics: WorkerMetrics
) -> int:
    """Run until told to stop; the exit code. Main thread only.

    Raises SettingsError for a port that can't be had and for spans that can't be recorded.
    """
    namespace = settings.queue.namespace
    spans = open_spans("worker", settings.otlp_endpoint, {"namespace": namespace})
    say_where_on_request()
    signals = StopSignals()
    signals.install()
    redis = connect(settings.queue.redis_url)
    worker = Worker(settings, served, runtime, redis, signals, metrics, spans)
    answers = pages(metrics.registry, live=lambda: worker.is_live, ready=lambda: worker.is_ready)
    with side_port(settings.metrics, answers):
        code = worker.run()
    if worker.is_engine_left:
        _exit_at_once(code)
    return code


def _exit_at_once(code: int) -> None:
    """Without the interpreter's end and the libraries', which may wait for a device that hangs."""
    settle()
    os._exit(code)
