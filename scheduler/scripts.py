"""Our Lua scripts: the only code that changes a job's state.

Each file of ``lua/`` is loaded behind what it uses of ``lua/common/``. They compute the names of
their keys, which rules out Redis Cluster; one Redis, or a primary with replicas, is what the
service runs on.

A script that meets a value of another type in the place of a key of ours, or a word in the place of
a number, breaks off; the mending script then puts the books right, and the first is run once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import NoScriptError, ResponseError

if TYPE_CHECKING:
    from redis import Redis

log = structlog.get_logger()

_DAMAGE: Final = (
    "WRONGTYPE",
    "value is not an integer",
    "increment or decrement would overflow",
    "attempt to perform arithmetic",
    "attempt to compare",
    "Cannot serialise number",
)
"""What Redis and Lua say of a value that is not what belongs there; the last: that isn't finite."""

_COMMON: Final = ("keys", "wakes", "lines", "records", "measures", "ends", "waits")
"""In this order: each uses only those before it, and each of their definitions names one thing."""
_COMMENT: Final = re.compile(r" *--.*")
_DEFINITION: Final = re.compile(r"^(?=local )", re.MULTILINE)
_NAME: Final = re.compile(r"local (?:function )?(\w+)")

Argument = str | bytes | int

MENDED_LEASE_MS: Final = 3000
"""How long the owner of a job that is found running has to renew its lease."""


@cache
def source(name: str) -> str:
    """The text of one script behind those common definitions that it uses.

    Redis makes all that a script defines anew each time it runs; for a short one that was most of
    its time. In Lua a definition can only use what is above it, so one look from below finds all.
    """
    text = _read(name)
    common = "".join(_read(f"common/{part}") for part in _COMMON)
    for definition in reversed(_DEFINITION.split(common)):
        named = _NAME.match(definition)
        if named and re.search(rf"\b{named[1]}\b", text):
            text = definition + text
    return text


@cache
def digest(name: str) -> str:
    """The name under which Redis knows a script that it has run."""
    return sha1(source(name).encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    """A file's text without its comments, which name things too."""
    text = (files("scheduler") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return _COMMENT.sub("", text)


class Scripts:
    """The scripts over a synchronous client; ``call`` runs one by name."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace

    def call(self, name: str, *args: Argument, keys: tuple[str, ...] = ()) -> Any:
        try:
            return self._run(name, args, keys)
        except ResponseError as error:
            if not is_damage(error):
                raise
        self.mend(keys)
        return self._run(name, args, keys)

    def mend(self, keys: tuple[str, ...] = ()) -> None:
        _report(self._run("mend", (MENDED_LEASE_MS,), keys))

    def _run(self, name: str, args: Sequence[Argument], keys: tuple[str, ...]) -> Any:
        told = (*keys, self._namespace, *args)
        try:
            return self._redis.evalsha(digest(name), len(keys), *told)
        except NoScriptError:
            return self._redis.eval(source(name), len(keys), *told)


class AsyncScripts:
    """The scripts over an asyncio client."""

    def __init__(self, redis: AsyncRedis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace

    async def call(self, name: str, *args: Argument, keys: tuple[str, ...] = ()) -> Any:
        try:
            return await self._run(name, args, keys)
        except ResponseError as error:
            if not is_damage(error):
                raise
        _report(await self._run("mend", (MENDED_LEASE_MS,), keys))
        return await self._run(name, args, keys)

    async def _run(self, name: str, args: Sequence[Argument], keys: tuple[str, ...]) -> Any:
        told = (*keys, self._namespace, *args)
        try:
            return await self._redis.evalsha(digest(name), len(keys), *told)
        except NoScriptError:
            return await self._redis.eval(source(name), len(keys), *told)


def is_damage(error: Exception) -> bool:
    """Whether a script, or a command, met something else than belongs there."""
    return isinstance(error, ResponseError) and any(word in str(error) for word in _DAMAGE)


def _report(count: int) -> None:
    log.error("keys_mended", count=count)
