"""What must not be served, or can't be: refused, recorded, and the next job is spoken."""

from __future__ import annotations

import asyncio
import pickle
import re
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from rq.job import Job

from benchmarks.books import Books
from cli.bench_stack import PacedPlan, paced_stack
from cli.logs import OWN
from shared.messages import SpeechJob
from tests.chaos.callers import Callers, Heard
from tests.chaos.conftest import OpenSite
from tests.chaos.site import Site
from tests.conftest import until
from tests.e2e.stacks import noise

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


LONG = 150
"""Frames that last for longer than it takes to lose a job and take it on again."""


class Evil:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def queue_of(site: Site) -> str:
    (queue,) = site.books().stats
    return queue


async def test_what_lies_in_rqs_list_and_is_not_ours(open_site: OpenSite, tmp_path: Path) -> None:
    """Another function, a pickle, random bytes, an oversize payload, an impossible id."""
    async with open_site() as site:
        site.gateway()
        worker = site.worker()
        await site.ready()
        assert (await site.callers.speak(site.url, 5)).status == 200
        queue = queue_of(site)
        evil = tmp_path / "evil"

        def call(function: str, *arguments: Any) -> bytes:
            return zlib.compress(msgpack.packb([function, None, list(arguments), {}]))

        poisons: dict[str, bytes] = {
            "other-function": call("os.system", f"touch {evil}"),
            "our-function-other-arguments": call("psionic_csm.speak", "a", "b"),
            "a-pickle": zlib.compress(pickle.dumps(("os.system", None, (Evil(evil),), {}))),
            "a-bare-pickle": pickle.dumps(Evil(evil)),
            "random-bytes": bytes(range(256)) * 3,
            "oversize": call("psionic_csm.speak", "x" * 5_000_000),
            "a-bomb": zlib.compress(b"\0" * 50_000_000),
            "nothing": b"",
        }
        for name, data in poisons.items():
            site.redis.hset(Job.key_for(name), mapping={"data": data, "origin": queue})
            site.redis.rpush(f"rq:queue:{queue}", name)
        site.redis.rpush(f"rq:queue:{queue}", b"\xff\xfe", b"x" * 100_000)
        heard = await site.callers.speak(site.url, 5)
        await until(lambda: site.redis.llen(f"rq:queue:{queue}") == 0)

        assert (heard.status, heard.pcm) == (200, heard.undisturbed(5))
        refused = int(site.books().stats[queue]["foreign_refused"])
        assert refused == len(poisons) + 2
        assert worker.said.count("foreign_job_refused") == refused
        assert worker.alive
        assert not evil.exists()
        await until(lambda: site.redis.llen(f"rq:queue:{queue}:intermediate") == 0)
        assert list(site.redis.scan_iter(match="rq:job:*", count=1000)) == []


@pytest.mark.parametrize(
    ("damage", "status", "code"),
    [
        ("foreign_artifact", 400, "artifact_unavailable"),
        ("random_bytes", 500, "internal_error"),
        ("a_pickle", 500, "internal_error"),
        ("oversize", 500, "internal_error"),
    ],
)
async def test_a_jobs_record_that_is_not_what_was_admitted(
    open_site: OpenSite, damage: str, status: int, code: str
) -> None:
    """Its caller hears a code, the log says so, and those behind it are served."""
    async with open_site() as site:
        site.gateway()
        worker = site.worker(lanes=1, step_ms=20)
        await site.ready()
        first = site.callers.speaking(site.url, 40)
        await site.running(1)
        damaged = site.callers.speaking(site.url, 10, request_id="damaged")
        await site.waiting(1)
        behind = site.callers.speaking(site.url, 10)
        await site.waiting(2)
        key = f"csm:job:{site.job_of('damaged')['job_id']}"
        stored: Any = site.redis.hget(key, "payload")
        foreign = replace(SpeechJob.from_bytes(stored), artifact_id="other@sha256:00")
        payload = {
            "foreign_artifact": foreign.to_bytes(),
            "random_bytes": bytes(range(256)),
            "a_pickle": pickle.dumps(foreign),
            "oversize": msgpack.packb({"input": "x" * 5_000_000}),
        }[damage]
        site.redis.hset(key, "payload", payload)

        heard = await damaged
        assert (heard.status, heard.code) == (status, code)
        assert [each.status for each in await asyncio.gather(first, behind)] == [200, 200]
        assert code in worker.said or "job_refused" in worker.said


async def test_a_row_that_is_not_finite_ends_alone(open_site: OpenSite) -> None:
    """Its neighbours in the same batch are spoken to their end by the same process."""
    async with open_site() as site:
        site.gateway()
        worker = site.worker()
        await site.ready()
        *neighbours, bad = await asyncio.gather(
            *(site.callers.speak(site.url, 30) for _ in range(3)),
            site.callers.speak(site.url, 30, input="Hello. [nonfinite 10]"),
        )

        assert (bad.status, bad.code) == (502, "csm_synthesis_failed")
        assert {each.pcm == each.undisturbed(30) for each in neighbours} == {True}
        assert {each.attempt for each in neighbours} == {1}
        assert worker.alive


async def test_a_step_that_raises_takes_no_neighbour_with_it(
    demo_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases go back at once, the process exits with 70 and is started again with back-off, and the
    second time the poison runs alone: it is lost, and nobody else is.
    """
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    callers = Callers()
    with paced_stack(PacedPlan(lanes=4, step_ms=20)) as stack:
        began = time.monotonic()
        heard = [Heard(f"r{number}") for number in range(3)]
        answers = [
            callers.speaking(stack.url, 40, stream="jsonl_base64", heard=each) for each in heard
        ]
        poison = await callers.speak(stack.url, 40, input="[raise 20] Hello.")
        await asyncio.gather(*answers)
        took_s = time.monotonic() - began
        restarts = stack.supervisor.restarts["worker-1"]
        said = [line for line in stack.log.tail(OWN, 20) if "worker-1" in line]
        worker_said = "\n".join(stack.log.tail("worker-1", 200))
        books = Books.read(_client(stack.redis_url), stack.namespace)
    await callers.close()

    assert (poison.status, poison.code) == (502, "worker_lost")
    assert {(each.status, each.code) for each in heard} == {(200, None)}
    assert {each.pcm == each.undisturbed(40) for each in heard} == {True}
    assert {each.attempt for each in heard} == {2}
    assert restarts == 2
    assert [re.findall(r"exit code (\d+).* in ([\d.]+) s", line) for line in said] == [
        [("70", "0.25")],
        [("70", "0.5")],
    ]
    assert worker_said.count("fault=True") == 4 + 1
    assert took_s < 20
    assert books.faults() == []
    assert books.live == set()


async def test_a_text_that_kills_its_process_takes_no_neighbour_with_it(
    demo_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say which it was. Lost together twice, each gets one more try, alone: it is lost
    once more, and those who sat beside it are spoken to their end, without a gap.
    """
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    callers = Callers()
    with paced_stack(PacedPlan(lanes=4, step_ms=20)) as stack:
        heard = [Heard(f"r{number}") for number in range(3)]
        answers = [
            callers.speaking(stack.url, LONG, stream="jsonl_base64", heard=each) for each in heard
        ]
        await until(lambda: all(each.frames > 0 for each in heard))
        poison = await callers.speak(stack.url, 40, input="[kill 20] Hello.")
        await asyncio.gather(*answers)
        restarts = stack.supervisor.restarts["worker-1"]
        books = Books.read(_client(stack.redis_url), stack.namespace)
    await callers.close()

    assert (poison.status, poison.code) == (502, "worker_lost")
    assert {(each.status, each.code) for each in heard} == {(200, None)}
    assert {each.pcm == each.undisturbed(LONG) for each in heard} == {True}
    assert {each.attempt for each in heard} == {3}
    assert restarts == 3
    assert books.faults() == []
    assert books.live == set()


def _client(url: str) -> Any:
    import redis

    return redis.Redis.from_url(url)
