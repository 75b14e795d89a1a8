"""RQ carries job ids to workers and shows them to its tools. Nothing more is decided here.

Only RQ's public classes are used: a queue's list, ``Queue.lmove``, job records, the started
registry and worker registration. RQ's retries, timeouts, maintenance and registry clean-up are not:
they would move jobs without our scripts. A row in the started registry is scored years ahead, so
that a tool which cleans registries can't harm a live job.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis.exceptions import ResponseError
from rq import Queue, SimpleWorker
from rq.exceptions import DequeueTimeout, InvalidJobOperation
from rq.executions import Execution, ExecutionRegistry
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.worker import WorkerStatus
from rq.worker_registration import clean_worker_registry

from scheduler.connections import reading
from scheduler.rq_records import ForeignRecord, MsgpackSerializer, RqRecords
from scheduler.scripts import is_damage
from shared.clock import Countdown
from shared.keys import Keys

if TYPE_CHECKING:
    from redis import Redis

YEARS_S: Final = 10 * 365 * 86_400

MAX_SHOWN: Final = 1024
"""Twice the most lanes that a worker can have."""

SAID: Final = 50
SAYING_MS: Final = 10_000.0
"""So many foreign entries are logged in such a time, and all of them are counted."""

LIVE: Final = (b"waiting", b"running")

log = structlog.get_logger()


class Carrier:
    """One artifact's RQ queue, seen from a process that pushes or pulls ids."""

    def __init__(self, redis: Redis, namespace: str, queue: str) -> None:
        self._redis = redis
        self._keys = Keys(namespace)
        self._name = queue
        self._queue = Queue(queue, connection=redis, serializer=MsgpackSerializer)
        self._records = RqRecords(redis, queue)
        self._intermediate = IntermediateQueue(self._queue.key, redis)
        self._worker: SimpleWorker | None = None
        self._said, self._saying = 0, Countdown(0)  # of what was refused
        self._found: str | None = None  # the id that was pulled last, if its record was there
        self._shown: dict[str, Execution] = {}  # as started, by this worker and no more than it may

    @property
    def list_key(self) -> str:
        """RQ's list of this queue, which our scripts read."""
        return str(self._queue.key)

    def push(self, job_id: str, *, at_front: bool = False) -> None:
        """Enqueue an id. Doing it twice is harmless: the claim decides."""
        with self._redis.pipeline() as pipe:
            self._queue.enqueue_job(self._records.make(job_id), pipeline=pipe, at_front=at_front)
            pipe.execute()

    def pull(self, timeout_s: float | None) -> str | None:
        """The next id, or None. ``timeout_s`` None returns at once, else it blocks that long.

        A record that doesn't name our function, or can't be read, is refused, counted and dropped.
        """
        with reading(self._redis):
            return self._pull(timeout_s)

    def _pull(self, timeout_s: float | None) -> str | None:
        wait = Countdown(1000 * (timeout_s or 0))
        try:
            popped = Queue.lmove(self._redis, self._queue.key, timeout_s)
        except DequeueTimeout:
            time.sleep(max(0.0, wait.remaining_ms / 1000))  # whatever doesn't block answers at once
            return None
        except ResponseError as error:
            if not is_damage(error):
                raise
            self._mend_lists()
            return None
        if popped is None:
            return None
        job_id = str(popped[1].decode("utf-8", "replace"))
        self._found = None
        try:
            if self._records.has(job_id):
                self._found = job_id
        except ForeignRecord as foreign:
            self._refuse(popped[1], str(foreign))
            return None
        return job_id

    def _refuse(self, id_: bytes, why: str) -> None:
        name = id_.decode("utf-8", "replace")
        if self._saying.over:
            self._saying, self._said = Countdown(SAYING_MS), 0
        self._said += 1
        if self._said <= SAID:
            log.warning("foreign_job_refused", queue=self._name, rq_job=name[:80], why=why)
        self._redis.hincrby(self._keys.stats(self._name), "foreign_refused", 1)
        self._intermediate_remove(id_)
        self._redis.delete(Job.key_for(name))

    def _mend_lists(self) -> None:
        """Remove what somebody put in place of a list that ids go through. The reaper pushes the
        ids anew.
        """
        for key in (self._queue.key, self._intermediate.key):
            if self._redis.type(key) not in (b"list", b"none"):
                self._redis.unlink(key)
                log.error("keys_mended", count=1)

    def drop(self, job_id: str) -> None:
        """The id was pulled and led to nothing: take it off the intermediate list.

        A hint may arrive after its job's end, when nobody will forget the job any more: then its
        record goes here.
        """
        self._intermediate_remove(job_id)
        if self._redis.hget(self._keys.job(job_id), "state") not in LIVE:
            self.forget([job_id])

    def started(self, job_id: str, hint: str | None) -> None:
        """Show the job as started by this worker; ``hint`` is the id that was pulled for it.

        A worker that couldn't register shows nothing.
        """
        if self._worker is None:
            if hint is not None:
                self._intermediate_remove(hint)
            return
        record = self._records.make(job_id)
        with self._redis.pipeline() as pipe:
            execution = Execution.create(record, YEARS_S, pipe, worker_name=self._worker.name)
            if job_id != self._found:
                record.save(pipeline=pipe)
            record.prepare_for_execution(self._worker.name, pipeline=pipe)
            if self._worker.get_state() != WorkerStatus.BUSY:
                self._worker.set_state(WorkerStatus.BUSY, pipeline=pipe)
            if hint is not None:
                pipe.lrem(self._intermediate.key, 1, hint)
            pipe.execute()
        self._remember(job_id, execution)
        if hint not in (None, job_id):
            self.drop(hint)

    def forget(self, job_ids: list[str]) -> None:
        """Remove all that RQ holds of ended jobs. In no transaction: a full Redis refuses any, and
        this is what frees it.
        """
        if not job_ids:
            return
        own = [job_id for job_id in job_ids if self._forget_execution(job_id)]
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in set(job_ids).difference(own):
                # RQ has no record, or can't have one
                with suppress(InvalidJobOperation, ValueError):
                    self._records.make(job_id).delete(pipeline=pipe, remove_from_queue=True)
                pipe.lrem(self._intermediate.key, 0, job_id)
            pipe.delete(*map(Job.key_for, job_ids))
            pipe.zrem(self._keys.ended(self._name), *job_ids)
            pipe.execute()

    def forget_the_dead(self) -> None:
        """Drop what nobody else will: registrations of workers whose heartbeat has lapsed, and what
        was shown of jobs that had ended by then.

        A worker that stalls, or whose call a hanging Redis carries out after all, shows a job as
        started when its end has been forgotten long ago.
        """
        clean_worker_registry(self._queue)
        rows: Any = self._redis.zrange(self._queue.started_job_registry.key, 0, -1)
        pulled: Any = self._redis.lrange(self._intermediate.key, 0, -1)
        shown = {row.partition(b":")[0].decode("utf-8", "replace") for row in (*rows, *pulled)}
        if not shown:
            return
        job_ids = sorted(shown)
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hget(self._keys.job(job_id), "state")
            states = pipe.execute()
        pairs = zip(job_ids, states, strict=True)
        self.forget([job_id for job_id, state in pairs if state not in LIVE])

    def birth(self, worker_id: str) -> None:
        """Register as an RQ worker of this queue, so that ``rq info`` shows it."""
        pool = self._redis.connection_pool.connection_kwargs
        patience_s = pool.get("socket_timeout")
        try:
            self._worker = SimpleWorker(
                [self._queue],
                name=worker_id,
                connection=self._redis,
                serializer=MsgpackSerializer,
                worker_ttl=30,
                log_job_description=False,
            )
        finally:
            # RQ raises the pool's socket timeout for its own blocking reads, and then asks Redis
            # something. Our reads are shorter, and a Redis that hangs must not hold us for long.
            pool["socket_timeout"] = patience_s
        # The name is this process's own. If it is there, an earlier try broke off half-way.
        self._redis.delete(self._worker.key)
        self._worker.register_birth()
        self._worker.set_state(WorkerStatus.IDLE)

    def beat(self, *, busy: bool) -> None:
        if self._worker is not None:
            self._worker.heartbeat()
            self._worker.set_state(WorkerStatus.BUSY if busy else WorkerStatus.IDLE)

    def death(self) -> None:
        if self._worker is not None:
            self._worker.register_death()
            self._redis.delete(self._worker.key)

    def _remember(self, job_id: str, execution: Execution) -> None:
        """What was shown is known when it is forgotten. Of jobs that were lost it never is."""
        self._shown[job_id] = execution
        if len(self._shown) > MAX_SHOWN:
            del self._shown[next(iter(self._shown))]

    def _forget_execution(self, job_id: str) -> bool:
        """All but the record of a job that this worker alone showed, in one round trip where RQ's
        own way takes a dozen. False for any other job.
        """
        execution = self._shown.pop(job_id, None)
        if execution is None:
            return False
        with self._redis.pipeline(transaction=False) as pipe:
            execution.delete(job=self._records.make(job_id), pipeline=pipe)
            self._queue.remove(job_id, pipeline=pipe)
            pipe.lrem(self._intermediate.key, 0, job_id)
            pipe.zcard(ExecutionRegistry(job_id, self._redis).key)
            *_, others = pipe.execute()
        return not others

    def _intermediate_remove(self, job_id: str | bytes) -> None:
        """Take one entry of the id off the list."""
        self._redis.lrem(self._intermediate.key, 1, job_id)  # type: ignore[arg-type]
