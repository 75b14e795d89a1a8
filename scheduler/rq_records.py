"""RQ's record of an id: how ours is made, and how another's is told apart without decoding it."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgpack
from redis.exceptions import ResponseError
from rq.job import Job

from scheduler.connections import is_away

if TYPE_CHECKING:
    from redis import Redis

FUNCTION: Final = "psionic_csm.speak"
"""The one function name that a worker accepts. It is a label: nothing is imported by it."""

MAX_RECORD_BYTES: Final = 1024
"""Ours are some 60 bytes; what is larger isn't read."""

_JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class MsgpackSerializer:
    """RQ's serializer protocol without pickle: data, never code."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        packed: bytes = msgpack.packb(value)
        return packed

    @staticmethod
    def loads(data: bytes) -> Any:
        return msgpack.unpackb(data)


class ForeignRecord(Exception):
    """An id that lay in our list and isn't ours; says why."""


class RqRecords:
    """The records of one queue."""

    def __init__(self, redis: Redis, queue: str) -> None:
        self._redis = redis
        self._queue = queue

    def make(self, job_id: str) -> Job:
        """Ours for this id, in memory. Raises ValueError for what RQ takes for no id."""
        return Job.create(
            FUNCTION,
            args=(job_id,),
            id=job_id,
            connection=self._redis,
            serializer=MsgpackSerializer,
            timeout=-1,
            result_ttl=0,
            failure_ttl=60,
            description=job_id,
            origin=self._queue,
        )

    def has(self, job_id: str) -> bool:
        """Whether RQ has our record of this id. Raises ForeignRecord for one that isn't ours, by
        its bytes alone.
        """
        if not _JOB_ID.fullmatch(job_id):
            raise ForeignRecord("not an id of ours")
        key = Job.key_for(job_id)
        try:
            size = self._redis.hstrlen(key, "data")
            if size == 0:
                if self._redis.exists(key):
                    raise ForeignRecord("record without data")
                return False
            if size > MAX_RECORD_BYTES:
                raise ForeignRecord("oversize record")
            stored: Any = self._redis.hget(key, "data")
            if stored is None:  # another worker served and forgot the job in between
                return False
            named = zlib.decompressobj().decompress(stored, MAX_RECORD_BYTES)
            expected = self.make(job_id).data
        except (ResponseError, ValueError, zlib.error) as error:
            if is_away(error):
                raise
            raise ForeignRecord(f"unreadable record ({type(error).__name__})") from error
        if named != expected:
            raise ForeignRecord("names another function")
        return True
