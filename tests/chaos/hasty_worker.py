"""The paced worker, which gives a stuck engine up after three seconds: nobody wants to wait for
half a minute in a test. No sooner: a busy machine may hold the whole process up for one look.

python -m tests.chaos.hasty_worker --lanes 4 --step-ms 40
"""

from __future__ import annotations

import sys

from benchmarks.paced_worker import main
from gpu_worker import watchdog

if __name__ == "__main__":
    watchdog.STUCK_MS = 3000.0  # type: ignore[misc]
    sys.exit(main())
