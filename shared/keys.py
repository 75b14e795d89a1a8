"""Every Redis key of ours, spelled once. Each starts with the deployment's namespace.

RQ's own keys start with ``rq:``; the namespace is in the names of its queues and in the ids of its
jobs, so that two deployments on one Redis don't meet there either.

``benchmarks/books.py`` alone spells them again, on purpose: it checks the books from outside, and a
name that is wrong here would otherwise be wrong in the check alike.

| key | type | holds |
|---|---|---|
| ``ns:job:<job>`` | hash | one job: state, deadline, lease owner, payload, outcome |
| ``ns:events:<job>`` | stream | what the job's listeners hear: claims, frames, the end |
| ``ns:listeners:<job>`` | zset | ``gateway|connection``, scored by when the membership lapses |
| ``ns:waiting:<queue>`` | zset | admitted and not claimed, scored by class and order of admission |
| ``ns:line:<queue>:<line>`` | zset | waiting jobs of one line, scored by order of admission |
| ``ns:ring:<queue>`` | zset | lines with jobs, ``class:principal``, scored by whose turn it is |
| ``ns:running:<queue>`` | zset | claimed, scored by lease expiry |
| ``ns:alone:<queue>`` | zset | claimed to run alone in a worker, scored by deadline |
| ``ns:drain:<queue>`` | string | the worker that makes itself free for what must run alone |
| ``ns:stats:<queue>`` | hash | counters, sums over what waits and runs, measured times |
| ``ns:lanes:<queue>`` | zset | ``worker|lanes`` of ready workers, scored by expiry |
| ``ns:ended:<queue>`` | zset | ended jobs whose RQ record is to be removed, by time |
| ``ns:queues`` | set | names of the queues that exist |
| ``ns:request:<principal>:<id>`` | string | the job that a request id is bound to |
| ``ns:turn:<principal>:<id>`` | set | live jobs of one cancellation id |
| ``ns:cancelled:<principal>`` | zset | ``kind:id`` of remembered cancels, scored by expiry |
| ``ns:worker:<worker>`` | string | time of its heartbeat and what a worker says of itself |
| ``ns:workers`` | zset | live workers, scored by expiry |
| ``ns:gateway:<gateway>`` | string | time of its last renewal and how many callers wait with it |
| ``ns:gateways`` | zset | live gateways, scored by expiry |
| ``ns:wake:<gateway>`` | stream | ids of jobs that have news for this gateway |
| ``ns:retained`` | zset | ``job|bytes`` of kept audio, scored by expiry |
| ``ns:claim:<execution>`` | string | the job of a claim, in case its reply was lost |
| ``ns:reaper`` | hash | when the last reap ran, until when leases may not lapse, the last outage |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RQ_REGISTRIES: Final = ("rq:queues", "rq:workers")
"""RQ's sets of all its queues and workers, which deployments on one Redis share."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one namespace."""

    namespace: str

    def job(self, job_id: str) -> str:
        return f"{self.namespace}:job:{job_id}"

    def events(self, job_id: str) -> str:
        return f"{self.namespace}:events:{job_id}"

    def listeners(self, job_id: str) -> str:
        return f"{self.namespace}:listeners:{job_id}"

    def waiting(self, queue: str) -> str:
        return f"{self.namespace}:waiting:{queue}"

    def running(self, queue: str) -> str:
        return f"{self.namespace}:running:{queue}"

    def stats(self, queue: str) -> str:
        return f"{self.namespace}:stats:{queue}"

    def lanes(self, queue: str) -> str:
        return f"{self.namespace}:lanes:{queue}"

    def line(self, queue: str, line: str) -> str:
        """``line`` is ``class:principal``, as ``ring`` names it."""
        return f"{self.namespace}:line:{queue}:{line}"

    def ring(self, queue: str) -> str:
        return f"{self.namespace}:ring:{queue}"

    def ended(self, queue: str) -> str:
        return f"{self.namespace}:ended:{queue}"

    @property
    def queues(self) -> str:
        return f"{self.namespace}:queues"

    def request(self, principal: str, request_id: str) -> str:
        return f"{self.namespace}:request:{principal}:{request_id}"

    def turn(self, principal: str, cancellation_id: str) -> str:
        return f"{self.namespace}:turn:{principal}:{cancellation_id}"

    def cancelled(self, principal: str) -> str:
        return f"{self.namespace}:cancelled:{principal}"

    def worker(self, worker_id: str) -> str:
        return f"{self.namespace}:worker:{worker_id}"

    @property
    def workers(self) -> str:
        return f"{self.namespace}:workers"

    def gateway(self, gateway_id: str) -> str:
        return f"{self.namespace}:gateway:{gateway_id}"

    @property
    def gateways(self) -> str:
        return f"{self.namespace}:gateways"

    def wake(self, gateway_id: str) -> str:
        return f"{self.namespace}:wake:{gateway_id}"

    @property
    def retained(self) -> str:
        return f"{self.namespace}:retained"

    @property
    def reaper(self) -> str:
        return f"{self.namespace}:reaper"

    @property
    def everything(self) -> tuple[str, ...]:
        """Patterns that match every key of this deployment, ours and RQ's."""
        return (f"{self.namespace}:*", f"rq:{self.registered}")

    @property
    def registered(self) -> str:
        """The pattern of this deployment's members of ``RQ_REGISTRIES``."""
        return f"*{self.namespace}[-.:]*"
