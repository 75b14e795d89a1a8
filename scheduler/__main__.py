"""The scheduler process: reaps and keeps the books right when no worker is alive to do it."""

from __future__ import annotations

import signal
import sys
import threading

import structlog

from scheduler.connections import connect
from scheduler.link import Link
from scheduler.metrics import QueueMetrics
from scheduler.reaper import Reaper
from scheduler.side_port import pages, side_port
from shared.clock import Countdown
from shared.environment import BAD_SETTING, SettingsError
from shared.logging import configure_logging
from shared.metrics import Registry
from shared.settings import SchedulerSettings
from shared.signals import STOP, say_where_on_request, stop_signals

SILENT_MS = 30_000.0
"""Beyond two intervals, a reaper that has not gone round for so long is stuck."""

LATE_MS = 5_000.0
"""Beyond two intervals, a round that was done so long ago says nothing of now: Redis may hang."""

log = structlog.get_logger()


def run(settings: SchedulerSettings, stop: threading.Event) -> None:
    """Reap once per interval until ``stop`` is set, whatever Redis answers or doesn't.

    Raises SettingsError when the port for scrapers can't be had.
    """
    rounds = Rounds(settings.queue.reap_interval_ms)
    redis, namespace = connect(settings.queue.redis_url), settings.queue.namespace
    served = pages(
        Registry(),
        live=lambda: rounds.is_live,
        ready=lambda: rounds.is_ready,
        further=QueueMetrics(redis, namespace).families,
    )
    with side_port(settings.metrics, served):
        _reap_on(Reaper(redis, settings.queue), settings, stop, rounds)


class Rounds:
    """How the reaping goes: whether it goes on, and whether a round was done just now."""

    def __init__(self, interval_ms: int) -> None:
        self._silent_ms = SILENT_MS + 2 * interval_ms
        self._late_ms = LATE_MS + 2 * interval_ms
        self._silent = Countdown(self._silent_ms)
        self._late = Countdown(0)

    @property
    def is_live(self) -> bool:
        return not self._silent.over

    @property
    def is_ready(self) -> bool:
        return not self._late.over

    def gone(self, done: bool) -> None:
        self._silent = Countdown(self._silent_ms)
        self._late = Countdown(self._late_ms if done else 0)


def _reap_on(
    reaper: Reaper, settings: SchedulerSettings, stop: threading.Event, rounds: Rounds
) -> None:
    interval_s = settings.queue.reap_interval_ms / 1000
    link = Link(failure="reap_failed")
    log.info("scheduler_started", namespace=settings.queue.namespace)
    while not stop.wait(interval_s):
        done = False
        with link.attempt():
            reaper.reap()
            done = True
        rounds.gone(done)
    log.info("scheduler_stopped")


def main() -> int:
    stop = threading.Event()
    try:
        settings = SchedulerSettings.from_env()
        configure_logging("scheduler", settings.log_level)
        say_where_on_request()
        for signum in stop_signals():
            signal.signal(signum, lambda *_: stop.set())
        run(settings, stop)
        for signum in STOP:
            signal.signal(signum, signal.SIG_IGN)  # told again as it ends, it still exits with 0
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_SETTING
    return 0


if __name__ == "__main__":
    sys.exit(main())
