"""Proves from outside that a running deployment's books balance: ``psionic-csm bench check``.

Reads Redis in one atomic step, through no code of the product's, not even ``shared.keys``: a rule
or a name that the product broke everywhere alike would show here. That the keys are spelled again
is the point.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import redis

READ: Final = """
local ns, out = ARGV[1], {jobs = {}, waiting = {}, running = {}, alone = {}, ring = {}, lines = {},
  stats = {}, listeners = {}, workers = {}, gateways = {}}
local function flat(list)
  local map = {}
  for i = 1, #list, 2 do map[list[i]] = list[i + 1] end
  return map
end
local function rest(k, kind) return string.sub(k, #ns + #kind + 3) end
for _, k in ipairs(redis.call('KEYS', ns .. ':job:*')) do
  local h = redis.call('HMGET', k, 'state', 'queue', 'principal', 'worker_id', 'line', 'seq',
    'budget', 'attempt_ms', 'solo')
  out.jobs[rest(k, 'job')] = {state = h[1], queue = h[2], principal = h[3], worker = h[4],
    line = h[5], seq = h[6], budget = h[7], since = h[8],
    solo = h[9], text = redis.call('HEXISTS', k, 'payload') == 1}
end
for _, queue in ipairs(redis.call('SMEMBERS', ns .. ':queues')) do
  out.waiting[queue] = flat(redis.call('ZRANGE', ns .. ':waiting:' .. queue, 0, -1, 'WITHSCORES'))
  out.running[queue] = flat(redis.call('ZRANGE', ns .. ':running:' .. queue, 0, -1, 'WITHSCORES'))
  out.alone[queue] = flat(redis.call('ZRANGE', ns .. ':alone:' .. queue, 0, -1, 'WITHSCORES'))
  out.ring[queue] = flat(redis.call('ZRANGE', ns .. ':ring:' .. queue, 0, -1, 'WITHSCORES'))
  out.lines[queue] = {}
  local lines = ns .. ':line:' .. queue .. ':'
  for _, k in ipairs(redis.call('KEYS', lines .. '*')) do
    out.lines[queue][string.sub(k, #lines + 1)] = redis.call('ZRANGE', k, 0, -1)
  end
  out.stats[queue] = flat(redis.call('HGETALL', ns .. ':stats:' .. queue))
end
for _, k in ipairs(redis.call('KEYS', ns .. ':listeners:*')) do
  out.listeners[rest(k, 'listeners')] = flat(redis.call('ZRANGE', k, 0, -1, 'WITHSCORES'))
end
for _, k in ipairs(redis.call('KEYS', ns .. ':worker:*')) do
  out.workers[rest(k, 'worker')] = string.match(redis.call('GET', k), '^%d+|(.*)$')
end
for _, k in ipairs(redis.call('KEYS', ns .. ':gateway:*')) do
  out.gateways[rest(k, 'gateway')] = string.match(redis.call('GET', k), '^%d+|(%d+)$')
end
return cjson.encode(out)
"""

WAITING: Final = "waiting"
RUNNING: Final = "running"


@dataclass(frozen=True, slots=True)
class Books:
    """One moment of one namespace. Sets and counters are by queue; ``gateways`` says how many
    callers wait with each, ``lines`` who stands in which line, in its order."""

    jobs: dict[str, dict[str, Any]]
    waiting: dict[str, set[str]]
    running: dict[str, set[str]]
    alone: dict[str, set[str]]
    ring: dict[str, set[str]]
    lines: dict[str, dict[str, list[str]]]
    stats: dict[str, dict[str, str]]
    listeners: dict[str, set[str]]
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    gateways: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, client: redis.Redis, namespace: str) -> Books:
        seen: Any = json.loads(str(client.eval(READ, 0, namespace), "utf-8"))
        return cls(
            jobs=dict(seen["jobs"]),
            waiting={queue: set(ids) for queue, ids in seen[WAITING].items()},
            running={queue: set(ids) for queue, ids in seen[RUNNING].items()},
            alone={queue: set(ids) for queue, ids in seen["alone"].items()},
            ring={queue: set(names) for queue, names in seen["ring"].items()},
            lines={queue: dict(lines) for queue, lines in seen["lines"].items()},
            stats={queue: dict(values) for queue, values in seen["stats"].items()},
            listeners={job: set(names) for job, names in dict(seen["listeners"]).items()},
            workers={name: json.loads(text) for name, text in dict(seen["workers"]).items()},
            gateways={name: int(count) for name, count in dict(seen["gateways"]).items()},
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
            *self._misnoted(),
            *(
                f"{job} is {said['state']} and its text is {'kept' if said['text'] else 'gone'}"
                for job, said in self.jobs.items()
                if bool(said["text"]) != (job in self.live)
            ),
        ]

    def unsettled(self, *, waiters: int | None = None) -> dict[str, str]:
        """What has to agree once nothing changes any more: lanes, and callers that wait.

        By what it is that differs, so that a difference can be known again at a later look.
        Workers and gateways speak for themselves every now and then, so some differ for a moment.
        """
        found = dict([*self._lanes(), *self._callers()])
        heard = sum(len(self.listeners.get(job, ())) for job in self.live)
        if waiters not in (None, heard):
            found["callers"] = f"{heard} listeners for {waiters} callers"
        return found

    def _lanes(self) -> Iterator[tuple[str, str]]:
        held = Counter(said["worker"] for said in self.jobs.values() if said["state"] == RUNNING)
        for name in sorted(self.workers.keys() | held.keys(), key=str):
            if name not in self.workers:
                yield f"{name} gone", f"{name} is gone and holds {held[name]} leases"
            elif (says := int(self.workers[name]["in_flight"])) != held[name]:
                yield (
                    f"{name} {'idle' if says < held[name] else 'busy'}",
                    f"{name} says {says} in flight and holds {held[name]} leases",
                )

    def _callers(self) -> Iterator[tuple[str, str]]:
        heard: Counter[str] = Counter()
        for job, names in self.listeners.items():
            known = (name.partition("|")[0] for name in names)
            heard.update(
                gateway for gateway in known if gateway in self.gateways or job in self.live
            )
        for gateway in sorted(self.gateways.keys() | heard.keys()):
            count = self.gateways.get(gateway)
            if count is None:
                yield f"{gateway} gone", f"{gateway} is gone and has {heard[gateway]} listeners"
            elif count != heard[gateway]:
                yield (
                    f"{gateway} {'unheard' if count > heard[gateway] else 'overheard'}",
                    f"{count} callers wait with {gateway}, which has {heard[gateway]} listeners",
                )
        for job in sorted(self.live):
            if not self.listeners.get(job):
                yield f"{job} unheard", f"{job} has no listener"

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

    def _misnoted(self) -> list[str]:
        """Which running jobs have a worker to themselves, as the wait estimate is told."""
        return [
            f"{queue}: {sorted(noted)} are noted to run alone, and not {sorted(alone)}"
            for queue, noted in self.alone.items()
            if noted != (alone := {job for job in self.running[queue] if self._is_solo(job)})
        ]

    def _is_solo(self, job: str) -> bool:
        return self._said(job, "solo") == "1"

    def _miscounted(self) -> list[str]:
        faults = []
        for queue, stats in self.stats.items():
            admitted, ended = int(stats.get("admitted", 0)), int(stats.get("ended", 0))
            depth, in_flight = len(self.waiting[queue]), len(self.running[queue])
            if admitted != depth + in_flight + ended:
                faults.append(f"{queue}: {admitted} is not {depth} + {in_flight} + {ended}")
            faults += self._misaligned(queue)
            for name, expected in self._sums(queue).items():
                if int(stats.get(name, 0)) != expected:
                    faults.append(f"{queue}: {name} is {stats.get(name, 0)} and not {expected}")
        return faults

    def _misaligned(self, queue: str) -> list[str]:
        """Each waiting job stands in its own line alone, in order; the ring knows every line."""
        faults = []
        expected: dict[str, list[str]] = {}
        for job in sorted(self.waiting[queue], key=lambda job: int(self._said(job, "seq"))):
            expected.setdefault(self._said(job, "line"), []).append(job)
        for line in sorted(expected.keys() | self.lines[queue].keys()):
            if (stands := self.lines[queue].get(line, [])) != expected.get(line, []):
                faults.append(f"{queue}: in line {line} are {stands}, not {expected.get(line, [])}")
        if self.ring[queue] != expected.keys():
            faults.append(f"{queue}: the ring has {self.ring[queue]}, not {set(expected)}")
        return faults

    def _sums(self, queue: str) -> dict[str, int]:
        """What is summed up as it changes, added up anew."""
        sums = Counter(waiting_frames_interactive=0, waiting_frames_batch=0)
        for job in self.waiting[queue]:
            priority = self._said(job, "line").partition(":")[0]
            sums[f"waiting_frames_{priority}"] += int(self._said(job, "budget"))
        running = self.running[queue]
        return {
            "waiting_frames:interactive": sums["waiting_frames_interactive"],
            "waiting_frames:batch": sums["waiting_frames_batch"],
            "running_frames": sum(int(self._said(job, "budget")) for job in running),
            "running_since_ms": sum(int(self._said(job, "since")) for job in running),
        }

    def _said(self, job: str, what: str) -> str:
        """A field of a job; of one that is gone or damaged, what adds nothing."""
        return str(self.jobs.get(job, {}).get(what) or "0")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found: ``faults`` at some moment, ``differences`` at every moment."""

    books: Books
    looks: int
    faults: list[str]
    differences: list[str]

    @property
    def balanced(self) -> bool:
        return not self.faults and not self.differences


LOOK_EVERY_S: Final = 0.25


def check(client: redis.Redis, namespace: str, settle_s: float) -> Verdict:
    """Look until nothing differs, at most for ``settle_s``.

    A fault counts whenever it is seen. A difference between what processes say and what the books
    say counts if every look shows it, which under a steady load none does.
    """
    until = time.monotonic() + settle_s
    books = Books.read(client, namespace)
    faults, lasting, looks = books.faults(), books.unsettled(), 1
    while lasting and not faults and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        books = Books.read(client, namespace)
        faults, looks = books.faults(), looks + 1
        now = books.unsettled()
        lasting = {what: now[what] for what in lasting if what in now}
    return Verdict(books, looks, faults, list(lasting.values()))
