"""Proves from outside that a running deployment's books balance.

    python -m tests.chaos.checker REDIS_URL NAMESPACE

Reads Redis in one atomic step, through no code of the product's: a rule that the product broke
everywhere alike would show here. Exit code 0 when everything agrees, else 1 and what doesn't.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import redis

READ: Final = """
local ns, out = ARGV[1], {jobs = {}, waiting = {}, running = {}, backlog = {}, stats = {},
  listeners = {}, workers = {}}
local function flat(list)
  local map = {}
  for i = 1, #list, 2 do map[list[i]] = list[i + 1] end
  return map
end
local function rest(k, kind) return string.sub(k, #ns + #kind + 3) end
for _, k in ipairs(redis.call('KEYS', ns .. ':job:*')) do
  local h = redis.call('HMGET', k, 'state', 'queue', 'principal', 'worker_id')
  out.jobs[rest(k, 'job')] = {state = h[1], queue = h[2], principal = h[3], worker = h[4],
    text = redis.call('HEXISTS', k, 'payload') == 1}
end
for _, queue in ipairs(redis.call('SMEMBERS', ns .. ':queues')) do
  out.waiting[queue] = flat(redis.call('ZRANGE', ns .. ':waiting:' .. queue, 0, -1, 'WITHSCORES'))
  out.running[queue] = flat(redis.call('ZRANGE', ns .. ':running:' .. queue, 0, -1, 'WITHSCORES'))
  out.backlog[queue] = flat(redis.call('HGETALL', ns .. ':backlog:' .. queue))
  out.stats[queue] = flat(redis.call('HGETALL', ns .. ':stats:' .. queue))
end
for _, k in ipairs(redis.call('KEYS', ns .. ':listeners:*')) do
  out.listeners[rest(k, 'listeners')] = flat(redis.call('ZRANGE', k, 0, -1, 'WITHSCORES'))
end
for _, k in ipairs(redis.call('KEYS', ns .. ':worker:*')) do
  out.workers[rest(k, 'worker')] = string.match(redis.call('GET', k), '^%d+|(.*)$')
end
return cjson.encode(out)
"""

WAITING: Final = "waiting"
RUNNING: Final = "running"


@dataclass(frozen=True, slots=True)
class Books:
    """One moment of one namespace. Sets and counters are by queue."""

    jobs: dict[str, dict[str, Any]]
    waiting: dict[str, set[str]]
    running: dict[str, set[str]]
    backlog: dict[str, dict[str, int]]
    stats: dict[str, dict[str, str]]
    listeners: dict[str, set[str]]
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, client: redis.Redis, namespace: str) -> Books:
        seen: Any = json.loads(str(client.eval(READ, 0, namespace), "utf-8"))
        return cls(
            jobs=dict(seen["jobs"]),
            waiting={queue: set(ids) for queue, ids in seen[WAITING].items()},
            running={queue: set(ids) for queue, ids in seen[RUNNING].items()},
            backlog={
                queue: {name: int(count) for name, count in dict(counts).items()}
                for queue, counts in seen["backlog"].items()
            },
            stats={queue: dict(values) for queue, values in seen["stats"].items()},
            listeners={job: set(names) for job, names in dict(seen["listeners"]).items()},
            workers={name: json.loads(text) for name, text in dict(seen["workers"]).items()},
        )

    @property
    def live(self) -> set[str]:
        return {job for job, said in self.jobs.items() if said["state"] in (WAITING, RUNNING)}

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing runs, and every worker has said so."""
        return not self.live and not any(said["in_flight"] for said in self.workers.values())

    def faults(self) -> list[str]:
        """What can't be true at any moment, whatever has died. Empty when the books balance."""
        return [
            *self._misplaced(WAITING, self.waiting),
            *self._misplaced(RUNNING, self.running),
            *self._miscounted(),
            *(
                f"{job} is {said['state']} and its text is {'kept' if said['text'] else 'gone'}"
                for job, said in self.jobs.items()
                if bool(said["text"]) != (job in self.live)
            ),
        ]

    def unsettled(self, *, waiters: int | None = None) -> list[str]:
        """What has to agree once nothing changes any more: lanes, and callers that wait."""
        held = Counter(said["worker"] for said in self.jobs.values() if said["state"] == RUNNING)
        lanes = [
            f"{name} says {said['in_flight']} in flight and holds {held[name]} leases"
            for name, said in self.workers.items()
            if said["in_flight"] != held[name]
        ]
        orphans = [f"{job} has no listener" for job in self.live if not self.listeners.get(job)]
        heard = sum(len(self.listeners.get(job, ())) for job in self.live)
        callers = [] if waiters in (None, heard) else [f"{heard} listeners for {waiters} callers"]
        return [*lanes, *orphans, *callers]

    def _misplaced(self, state: str, sets: dict[str, set[str]]) -> list[str]:
        belong = {(said["queue"], job) for job, said in self.jobs.items() if said["state"] == state}
        listed = {(queue, job) for queue, jobs in sets.items() for job in jobs}
        return [
            *(f"{job} of {queue} is {state}, not in the set" for queue, job in belong - listed),
            *(
                f"{job} is in the {state} set of {queue} and isn't"
                for queue, job in listed - belong
            ),
        ]

    def _miscounted(self) -> list[str]:
        faults = []
        for queue, stats in self.stats.items():
            admitted, ended = int(stats.get("admitted", 0)), int(stats.get("ended", 0))
            depth, in_flight = len(self.waiting[queue]), len(self.running[queue])
            if admitted != depth + in_flight + ended:
                faults.append(f"{queue}: {admitted} is not {depth} + {in_flight} + {ended}")
            mine = Counter(self.jobs.get(job, {}).get("principal") for job in self.waiting[queue])
            if dict(mine) != self.backlog[queue]:
                faults.append(f"{queue}: backlog {self.backlog[queue]}, waiting {dict(mine)}")
        return faults


def main(url: str, namespace: str) -> int:
    with redis.Redis.from_url(url) as client:
        books = Books.read(client, namespace)
    faults = books.faults()
    sys.stdout.write(
        f"{sum(map(len, books.waiting.values()))} waiting, "
        f"{sum(map(len, books.running.values()))} running, {len(books.workers)} workers\n"
    )
    sys.stdout.writelines(f"{fault}\n" for fault in [*faults, *books.unsettled()])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
