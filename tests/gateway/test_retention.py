"""How long a request is kept, on a real Redis: its text, its audio, its facts, and then nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.conftest import wait_until
from tests.gateway.processes import Process, process_in
from tests.gateway.world import SPEECH, Worker, gateway_settings, pcm

pytestmark = pytest.mark.redis

TEXT = "A text that is not kept."
SETTINGS = gateway_settings(result_ttl_ms=2500, metadata_ttl_ms=7000)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with (
        process_in(
            tmp_path_factory.mktemp("retention"),
            PSIONIC_CSM_RESULT_TTL_MS=str(SETTINGS.queue.result_ttl_ms),
            PSIONIC_CSM_LISTENER_TTL_MS="1000",  # audio is kept while a caller counts as listening
            PSIONIC_CSM_METADATA_TTL_MS=str(SETTINGS.queue.metadata_ttl_ms),
        ) as process,
        process.server.client() as client,
    ):
        process.worker = Worker(client, SETTINGS, process.worker.artifact)
        yield process


def everything(process: Process) -> str:
    """All keys and values that Redis holds of this deployment."""
    keys = process.keys("*")
    with process.server.client() as client:
        readers: dict[bytes, Callable[[bytes], Any]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"stream": client.xrange,
            b"set": client.smembers,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"none": lambda _: None,
        }
        return str([(key, readers[client.type(key)](key)) for key in keys])


def shown(data: bytes) -> str:
    return repr(data)[2:-1]


def is_gone(process: Process, path: str) -> bool:
    """Whether there is nothing any more; what goes while it is being sent breaks off."""
    with suppress(httpx.RemoteProtocolError):
        return process.http.get(path).status_code == 404
    return False


def test_nothing_of_a_request_outlives_its_time(process: Process) -> None:
    """The text goes with the end, the audio after its time, the facts after theirs. What is
    left in Redis has no name of it.
    """
    process.worker.beat()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(process.post, {"input": TEXT, "request_id": "kept"})
        claim = process.claim()
        assert TEXT in everything(process)
        process.worker.post(claim, 0, 1)
        assert shown(pcm(1)[:100]) in everything(process)
        process.worker.end(claim, 2)
        assert asked.result().status_code == 200

    result, audio = f"{SPEECH}/kept", f"{SPEECH}/kept/audio"
    assert TEXT not in everything(process)
    assert process.http.get(audio).content.endswith(pcm(1))
    wait_until(lambda: is_gone(process, audio))
    assert process.http.get(result).json()["state"] == "ended"
    assert shown(pcm(1)[:100]) not in everything(process)
    wait_until(lambda: process.http.get(result).status_code == 404)
    assert "kept" not in everything(process)
    process.reap()
    assert not [key for key in process.keys("*") if claim.job_id.encode() in key]
