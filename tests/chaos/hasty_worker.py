"""The paced worker, which gives a stuck engine up after a second: nobody wants to wait for half a
minute in a test.

python -m tests.chaos.hasty_worker --lanes 4 --step-ms 40
"""

from __future__ import annotations

import sys

from benchmarks.paced_worker import main
from gpu_worker import watchdog

if __name__ == "__main__":
    watchdog.STUCK_MS = 1000.0  # type: ignore[misc]
    sys.exit(main())
