"""What signals mean to every process of the service.

SIGTERM, SIGINT and SIGHUP tell it to stop, in order: a terminal that is closed, or an operator who
expects a hang-up to reload, breaks nobody off. SIGUSR1 makes it say where it stands, and go on.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from typing import Final

STOP: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WHERE: Final = signal.SIGUSR1


def stop_signals() -> tuple[signal.Signals, ...]:
    """Those that this process stops at: not a hang-up that it was started to ignore (nohup)."""
    return tuple(each for each in STOP if not _is_ignored_hang_up(each))


def say_where_on_request() -> None:
    """From now on SIGUSR1 writes to standard error which line each thread is at; no data."""
    faulthandler.register(WHERE, file=sys.stderr, all_threads=True)


def _is_ignored_hang_up(each: signal.Signals) -> bool:
    return each == signal.SIGHUP and signal.getsignal(each) == signal.SIG_IGN
