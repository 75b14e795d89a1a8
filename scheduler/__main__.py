"""The scheduler process: reaps and keeps the books right when no worker is alive to do it."""

from __future__ import annotations

import signal
import sys
import threading

import structlog

from scheduler.connections import TROUBLE, connect, is_away
from scheduler.reaper import Reaper
from shared.environment import SettingsError
from shared.logging import configure_logging
from shared.settings import SchedulerSettings

log = structlog.get_logger()


def run(settings: SchedulerSettings, stop: threading.Event) -> None:
    """Reap once per interval until ``stop`` is set, whatever Redis answers or doesn't."""
    reaper = Reaper(connect(settings.queue.redis_url), settings.queue)
    interval_s = settings.queue.reap_interval_ms / 1000
    away = False
    log.info("scheduler_started", namespace=settings.queue.namespace)
    while not stop.wait(interval_s):
        try:
            reaper.reap()
            if away:
                log.info("redis_back")
            away = False
        except TROUBLE as error:
            if not is_away(error):
                log.error("reap_failed", error=str(error)[:200])
            elif not away:
                log.warning("redis_away", error=type(error).__name__)
            away = True
    log.info("scheduler_stopped")


def main() -> int:
    try:
        settings = SchedulerSettings.from_env()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    configure_logging("scheduler", settings.log_level)
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    run(settings, stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
