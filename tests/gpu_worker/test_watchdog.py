"""When an engine that comes round no more is given up."""

from __future__ import annotations

import pytest

from gpu_worker.engine_thread import EngineFault
from gpu_worker.watchdog import LOOK_MS, STUCK_MS, Watchdog


class Clock:
    """What the watchdog takes for the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        monkeypatch.setattr("gpu_worker.watchdog.monotonic_ms", lambda: self.now_ms)

    def look(self, watchdog: Watchdog, rounds: int, after_ms: float, *, is_busy: bool) -> None:
        self.now_ms += after_ms
        watchdog.look(rounds, is_busy=is_busy)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_busy_engine_that_stands_is_given_up(clock: Clock) -> None:
    """After its time in one and the same round, and not before."""
    watchdog = Watchdog()
    clock.look(watchdog, 7, 0, is_busy=True)
    for _ in range(round(STUCK_MS / LOOK_MS) - 1):
        clock.look(watchdog, 7, LOOK_MS, is_busy=True)

    with pytest.raises(EngineFault, match="stuck"):
        clock.look(watchdog, 7, LOOK_MS, is_busy=True)


@pytest.mark.parametrize("is_busy", [True, False])
def test_an_engine_that_moves_or_rests_is_left_alone(clock: Clock, is_busy: bool) -> None:
    """However long: with work it comes round, and without work it waits for some."""
    watchdog = Watchdog()
    for number in range(5 * round(STUCK_MS / LOOK_MS)):
        clock.look(watchdog, number // 20 if is_busy else 7, LOOK_MS, is_busy=is_busy)


def test_work_after_a_long_rest_starts_the_count(clock: Clock) -> None:
    """The time without work is no part of it."""
    watchdog = Watchdog()
    clock.look(watchdog, 7, 0, is_busy=False)
    clock.look(watchdog, 7, 10 * STUCK_MS, is_busy=False)

    clock.look(watchdog, 7, LOOK_MS, is_busy=True)


def test_a_process_that_stood_still_says_nothing_of_its_engine(clock: Clock) -> None:
    """Stopped and woken, both threads stood: one look counts a second at most."""
    watchdog = Watchdog()
    clock.look(watchdog, 7, 0, is_busy=True)

    clock.look(watchdog, 7, 100 * STUCK_MS, is_busy=True)
    for _ in range(round(STUCK_MS / LOOK_MS) - 2):
        clock.look(watchdog, 7, LOOK_MS, is_busy=True)
    with pytest.raises(EngineFault):
        clock.look(watchdog, 7, LOOK_MS, is_busy=True)
