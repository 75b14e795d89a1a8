"""The engine's thread and its queues, over one that makes nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from gpu_worker.engine_thread import EngineThread
from gpu_worker.generation import Event, Released

LATE: list[Event] = [Released("late")]


class Quiet(EngineThread):
    """An engine with nothing to do, as that of a worker that can't serve or has no jobs."""

    def _main(self) -> None:
        self._take_commands(wait=True)

    def speak_up(self) -> None:
        self._emit(LATE)


@pytest.fixture
def slow_handler() -> Iterator[None]:
    """SIGUSR1 is handled for longer than anybody below is ready to wait."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        time.sleep(0.2)

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("slow_handler")
def test_a_signal_does_not_keep_the_worker_waiting_for_the_engine() -> None:
    """A poll ends with its time although a signal came in it whose handler outlasted that time: the
    loop goes on and sees that it was told to stop.
    """
    engine = Quiet()
    engine.start()
    signalled = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    released = threading.Timer(10, engine.speak_up)
    signalled.start()
    released.start()

    heard = engine.poll(0.1)

    released.cancel()
    signalled.join()
    engine.close(5)
    assert heard == []
