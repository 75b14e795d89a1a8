"""On the path of a process, this sets its wall clock off by ``CLOCK_SHIFT_S`` seconds.

Python imports a module of this name at every start, before anything else of the process.
"""

from __future__ import annotations

import datetime
import os
import time

_SHIFT_S = int(os.environ["CLOCK_SHIFT_S"])
_time, _time_ns = time.time, time.time_ns


class _Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Shifted:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> _Shifted:
        return cls.now(datetime.UTC).replace(tzinfo=None)


time.time = lambda: _time() + _SHIFT_S
time.time_ns = lambda: _time_ns() + _SHIFT_S * 1_000_000_000
datetime.datetime = _Shifted  # type: ignore[misc]
