"""RQ's own worker as it comes: it forks for each job.

python -m benchmarks.queue.rq_worker <redis url> <queue>
"""

from __future__ import annotations

import sys

from redis import Redis
from rq import Queue, Worker


def main() -> None:
    url, name = sys.argv[1:]
    with Redis.from_url(url) as redis:
        Worker([Queue(name, connection=redis)], connection=redis).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
