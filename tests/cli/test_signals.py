"""One clean way out on a signal, and only where it is safe."""

from __future__ import annotations

import signal

import pytest

from cli.signals import Interrupted, Signals


def test_a_signal_raises_inside_the_block() -> None:
    """Work that may be torn is torn at once, with the signal's number."""
    with Signals() as signals, pytest.raises(Interrupted) as caught, signals.raising():
        signal.raise_signal(signal.SIGTERM)

    assert caught.value.signum == signal.SIGTERM


def test_a_signal_outside_is_remembered_for_the_next_block() -> None:
    """A start that is under way is not torn; the work after it does not begin."""
    with Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted), signals.raising():
            pytest.fail("the block ran")


def test_once_stopping_every_signal_asks_for_hurry() -> None:
    """During the stop a signal raises nothing and calls for haste instead."""
    calls: list[int] = []
    with Signals() as signals:
        signals.hurry = lambda: calls.append(1)
        with signals.raising():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    assert len(calls) == 2


def test_what_was_there_before_comes_back() -> None:
    """After the block the process's own handlers are in place again."""
    before = signal.getsignal(signal.SIGINT)

    with Signals():
        assert signal.getsignal(signal.SIGINT) != before

    assert signal.getsignal(signal.SIGINT) == before


def test_nohup_is_respected() -> None:
    """A hang-up that is ignored, as under nohup, stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGHUP, before)
