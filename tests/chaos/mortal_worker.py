"""The paced worker, which kills itself as soon as it has reached a point of a job's life.

python -m tests.chaos.mortal_worker claimed --lanes 4 --step-ms 40
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks.paced_worker import main
from scheduler.carrier import Carrier
from scheduler.queue import WorkQueue

POINTS: Final[dict[str, tuple[type, str]]] = {
    "pulled": (Carrier, "pull"),
    "claimed": (WorkQueue, "claim"),
    "shown": (Carrier, "started"),
    "posted": (WorkQueue, "post"),
    "ended": (WorkQueue, "end"),
    "handed_back": (WorkQueue, "hand_back"),
}
"""Each is the return of one call that led to something."""


def fatal(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        answer = call(*args, **options)
        if answer or call.__name__ == "started":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return called


if __name__ == "__main__":
    owner, name = POINTS[sys.argv[1]]
    setattr(owner, name, fatal(getattr(owner, name)))
    sys.exit(main(sys.argv[2:]))
