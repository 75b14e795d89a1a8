"""The same model behind three ways to serve it: ours, RQ's own worker, mosec.

One worker process each, no pause between frames, the whole answer in one piece. What the others
lack is no part of it: they stream nothing, refuse nothing, and a death loses the job.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol
from uuid import uuid4

import psutil
from redis import Redis
from rq import Queue

from benchmarks.client import Caller
from benchmarks.processes import ProcessorTime
from benchmarks.queue.asking import NotServed, spoken
from benchmarks.queue.model import FRAMES, speech
from benchmarks.queue.records import Server, Tail
from benchmarks.target import Target
from benchmarks.timing import repeated, take_turns

OURS: Final = "psionic-csm"
RQ: Final = "RQ's own worker"
MOSEC: Final = "mosec"
NO_MOSEC: Final = "mosec is not installed (pip install mosec): not compared"
START_S: Final = 30.0
PER_TURN: Final = 5


class Contender(Protocol):
    """One way to serve the model, up and warm. ``pids``: every process that takes part."""

    @property
    def pids(self) -> Mapping[str, int]: ...

    def call(self) -> None: ...

    def crowd(self, jobs: int, at_once: int) -> None: ...


class OverHttp:
    """A server that is called by HTTP, from an event loop of its own."""

    def __init__(self, url: str, pids: Mapping[str, int], ask: Callable[[Caller], Any]) -> None:
        self.pids = pids
        self._ask = ask
        self._runner = asyncio.Runner()
        self._caller = Caller(url)

    def close(self) -> None:
        self._caller.close()
        self._runner.close()

    def call(self) -> None:
        self._runner.run(self._answered())

    def crowd(self, jobs: int, at_once: int) -> None:
        self._runner.run(self._crowd(jobs, at_once))

    async def _crowd(self, jobs: int, at_once: int) -> None:
        numbers = iter(range(jobs))

        async def one_after_another() -> None:
            for _ in numbers:
                await self._answered()

        await asyncio.gather(*(one_after_another() for _ in range(at_once)))

    async def _answered(self) -> None:
        reply = await self._ask(self._caller)
        if reply.status != 200 or len(reply.body) != SPEECH_BYTES:
            raise NotServed(reply)


class ByRq:
    """Jobs enqueued and waited for by RQ's own calls."""

    def __init__(self, redis: Redis, queue: str, pids: Mapping[str, int]) -> None:
        self.pids = pids
        self._queue = Queue(queue, connection=redis)

    def call(self) -> None:
        job = self._queue.enqueue(speech, 7, FRAMES, result_ttl=60)
        result = job.latest_result(timeout=int(START_S))
        if result is None or len(result.return_value or b"") != SPEECH_BYTES:
            raise TimeoutError("RQ's worker gave no answer")

    def crowd(self, jobs: int, at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as threads:
            for done in [threads.submit(self.call) for _ in range(jobs)]:
                done.result()


SPEECH_BYTES: Final = len(speech(7, FRAMES))


def compare(
    target: Target, redis: Redis, *, rounds: int, jobs: int, at_once: int
) -> tuple[tuple[Server, ...], tuple[str, ...]]:
    """Ours first. Lone calls take turns; crowds come one after another. And what was left out."""
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {
            OURS: stack.enter_context(_ours(target)),
            RQ: stack.enter_context(_rq(target, redis)),
        }
        notes: tuple[str, ...] = (NO_MOSEC,)
        if importlib.util.find_spec("mosec") is not None:
            contenders[MOSEC], notes = stack.enter_context(_mosec()), ()
        turns = {name: repeated(each.call, PER_TURN) for name, each in contenders.items()}
        take_turns(turns, 1)  # warm-up
        alone = take_turns(turns, rounds)
        servers = tuple(
            _measured(name, each, alone[name], jobs, at_once) for name, each in contenders.items()
        )
    return servers, notes


def _measured(
    name: str, contender: Contender, alone_s: list[float], jobs: int, at_once: int
) -> Server:
    clock = ProcessorTime(contender.pids)
    began = time.perf_counter()
    contender.crowd(jobs, at_once)
    seconds = time.perf_counter() - began
    cpu_s = clock.stop().total
    return Server(name, Tail.of([1000 * s for s in alone_s]), jobs / seconds, cpu_s / jobs)


@contextmanager
def _ours(target: Target) -> Iterator[OverHttp]:
    over = OverHttp(target.url, target.pids, lambda caller: spoken(caller, uuid4().hex, FRAMES))
    try:
        yield over
    finally:
        over.close()


@contextmanager
def _rq(target: Target, redis: Redis) -> Iterator[ByRq]:
    """On the Redis of the stack, in a queue of its own."""
    queue = f"bench-{uuid4().hex[:8]}"
    with _process("benchmarks.queue.rq_worker", target.redis_url, queue) as worker:
        yield ByRq(redis, queue, {"redis": target.pids["redis"], "worker": worker.pid})


@contextmanager
def _mosec() -> Iterator[OverHttp]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    arguments = ("--address", "127.0.0.1", "--port", port, "--log-level", "error")
    with _process("benchmarks.queue.mosec_server", *arguments) as parent:
        over = OverHttp(f"http://127.0.0.1:{port}", {}, _ask_mosec)
        try:
            _wait_until_answered(over, parent)
            family = [parent, *parent.children(recursive=True)]
            over.pids = {f"mosec-{number}": each.pid for number, each in enumerate(family)}
            yield over
        finally:
            over.close()


async def _ask_mosec(caller: Caller) -> Any:
    return await caller.post("/inference", {"seed": 7, "frames": FRAMES})


def _wait_until_answered(over: OverHttp, process: psutil.Process) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            return over.call()
        except (OSError, NotServed):
            if time.monotonic() > deadline or not process.is_running():
                raise
            threading.Event().wait(0.05)


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[psutil.Process]:
    """A process of ours that is ended with the block, and what it started with it."""
    started = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process = psutil.Process(started.pid)
    try:
        yield process
    finally:
        family = process.children(recursive=True) if started.poll() is None else []
        started.terminate()
        _, alive = psutil.wait_procs(family, timeout=5)
        for each in alive:
            each.kill()
        try:
            started.wait(5)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
