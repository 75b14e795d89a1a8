"""Our Lua scripts: the only code that changes a job's state.

Each file of ``lua/`` is loaded behind ``common.lua``. They compute the names of their keys, which
rules out Redis Cluster; one Redis, or a primary with replicas, is what the service runs on.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis as AsyncRedis

if TYPE_CHECKING:
    from redis import Redis
    from redis.commands.core import AsyncScript, Script


@cache
def source(name: str) -> str:
    """The text of one script with the common part in front."""
    folder = files("scheduler") / "lua"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name)]
    return "\n".join(parts)


class Scripts:
    """The scripts over a synchronous client; ``call`` runs one by name."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace
        self._loaded: dict[str, Script] = {}

    def call(self, name: str, *args: str | bytes | int, keys: tuple[str, ...] = ()) -> Any:
        script = self._loaded.get(name)
        if script is None:
            script = self._loaded[name] = self._redis.register_script(source(name))
        return script(keys=keys, args=[self._namespace, *args])


class AsyncScripts:
    """The scripts over an asyncio client."""

    def __init__(self, redis: AsyncRedis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace
        self._loaded: dict[str, AsyncScript] = {}

    async def call(self, name: str, *args: str | bytes | int, keys: tuple[str, ...] = ()) -> Any:
        script = self._loaded.get(name)
        if script is None:
            script = self._loaded[name] = self._redis.register_script(source(name))
        return await script(keys=keys, args=[self._namespace, *args])
