"""The supervisor of a stack: order, restarts, bounded stops, and children that never outlive it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cli.children import Child, ChildSpec, describe_exit
from cli.logs import OWN
from cli.supervisor import Backoff, Stage, Supervisor
from tests.cli.conftest import DEAF, STEADY, WAIT_S, HeardLog, is_alive
from tests.conftest import wait_until

MakeChild = Callable[..., ChildSpec]
QUICK = Backoff(first_s=0.01, most_s=0.02, healthy_s=1000.0)


@contextmanager
def running(stages: list[Stage], log: HeardLog, backoff: Backoff = QUICK) -> Iterator[Supervisor]:
    supervisor = Supervisor(stages, log, backoff)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.kill()
        supervisor.join()


def test_stages_start_in_order_and_stop_in_reverse(log: HeardLog, child: MakeChild) -> None:
    """A stage starts when the gate of the one before it opens, and ends after those behind it."""
    gate = threading.Event()
    first = Stage((child("first", STEADY),), gate=gate.is_set)
    second = Stage((child("second", STEADY), child("twin", STEADY)))

    with running([first, second], log) as supervisor:
        log.wait_for("first", "up")
        assert supervisor.pid("second") is None
        gate.set()
        log.wait_for("second", "up")
        if ("twin", "up") not in log.everything():
            log.wait_for("twin", "up")
        supervisor.stop()
        supervisor.join()

    ends = [label for label, line in log.everything() if line == "terminated"]
    assert sorted(ends[:2]) == ["second", "twin"]
    assert ends[2:] == ["first"]


def test_a_child_that_dies_is_started_again(log: HeardLog, child: MakeChild) -> None:
    """A killed process comes back under another pid, is counted, and the log says why."""
    with running([Stage((child("worker-1", STEADY),))], log) as supervisor:
        log.wait_for("worker-1", "up")
        supervisor.ready()
        before = supervisor.pid("worker-1")
        assert before is not None
        os.kill(before, signal.SIGKILL)

        said = log.wait_for(OWN, "worker-1 ended")
        log.wait_for("worker-1", "up")

        assert "SIGKILL" in said
        assert supervisor.pid("worker-1") != before
        assert supervisor.restarts == {"worker-1": 1}


def test_a_restart_that_fails_for_want_of_a_process_is_tried_again(
    log: HeardLog, child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has no process to give for a moment does not end the others that serve."""
    popen, refusals = subprocess.Popen, [errno.EAGAIN, errno.ENOMEM]

    def scarce(*arguments: Any, **options: Any) -> Any:
        if supervisor.pid("worker-1") is None and refusals:
            number = refusals.pop()
            raise OSError(number, os.strerror(number))
        return popen(*arguments, **options)

    stage = Stage((child("redis", STEADY), child("worker-1", STEADY)))
    with running([stage], log) as supervisor:
        log.wait_for("worker-1", "up")
        supervisor.ready()
        monkeypatch.setattr(subprocess, "Popen", scarce)
        before = supervisor.pid("worker-1")
        assert before is not None
        os.kill(before, signal.SIGKILL)

        log.wait_for(OWN, "worker-1 can't start now")
        log.wait_for("worker-1", "up")

        assert not refusals
        assert not supervisor.failed.is_set()
        assert supervisor.pid("redis") is not None


def test_a_child_that_can_t_be_heard_is_no_child(
    log: HeardLog, child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no thread to read it and wait for it, it is ended, and the caller told."""
    made: list[Any] = []
    popen = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        made.append(popen(*arguments, **options))
        return made[-1]

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setattr(threading.Thread, "start", none)

    with pytest.raises(OSError, match="can't start new thread"):
        Child(child("worker-1", STEADY), log, lambda _: None)

    assert made[0].returncode == -signal.SIGKILL


def test_restarts_never_end_once_ready(log: HeardLog, child: MakeChild) -> None:
    """After ready, a child that dies again and again is started again and again."""
    with running([Stage((child("worker-1", "pass"),))], log, Backoff(0.2, 0.2)) as supervisor:
        supervisor.ready()
        for number in range(1, 5):
            log.wait_for(OWN, f"restart {number} in")

        assert not supervisor.failed.is_set()


def test_a_child_that_keeps_dying_before_ready_fails_the_start(
    log: HeardLog, child: MakeChild
) -> None:
    """Three early deaths end the start, name the process and keep its last words; others stop."""
    bad = child("gateway", "import sys; print('no luck'); sys.exit(7)")

    with running([Stage((child("redis", STEADY),)), Stage((bad,))], log) as supervisor:
        assert supervisor.failed.wait(WAIT_S)
        supervisor.join()

        assert supervisor.failure is not None
        assert supervisor.failure.name == "gateway"
        assert supervisor.failure.why == "exit code 7"
        assert supervisor.failure.output[-1] == "no luck"
        assert supervisor.restarts["gateway"] == 2
        assert supervisor.pid("redis") is None


def test_a_bad_setting_fails_the_start_at_once(log: HeardLog, child: MakeChild) -> None:
    """Exit code 2 says that another try would end the same way."""
    bad = child("scheduler", "import sys; print('PSIONIC_CSM_X: takes Y'); sys.exit(2)")

    with running([Stage((bad,))], log) as supervisor:
        assert supervisor.failed.wait(WAIT_S)

        assert supervisor.restarts == {"scheduler": 0}


def test_a_program_that_does_not_exist_fails_the_start(log: HeardLog) -> None:
    """A missing binary is a start that failed, with the reason in the output."""
    spec = ChildSpec("redis", ("/nowhere/redis-server",), os.environ)

    with running([Stage((spec,))], log) as supervisor:
        assert supervisor.failed.wait(WAIT_S)
        supervisor.join()

        assert supervisor.failure is not None
        assert "/nowhere/redis-server" in " ".join(supervisor.failure.output)


def test_a_gate_that_stays_shut_fails_the_start(log: HeardLog, child: MakeChild) -> None:
    """A process that runs but never answers is given up after its time."""
    stage = Stage((child("redis", STEADY),), gate=lambda: False, gate_wait_s=0.1)

    with running([stage], log) as supervisor:
        assert supervisor.failed.wait(WAIT_S)

        assert supervisor.failure is not None
        assert "did not answer" in supervisor.failure.why


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_of_the_supervisor_ends_what_it_started(log: HeardLog, child: MakeChild) -> None:
    """Nobody waits for a stack whose supervisor is gone, and none of it stays."""

    def gate() -> bool:
        log.wait_for("first", "up")
        raise LookupError

    with running([Stage((child("first", STEADY),), gate=gate)], log) as supervisor:
        assert supervisor.failed.wait(WAIT_S)
        supervisor.join()

    assert supervisor.failure is not None
    assert supervisor.failure.why == "it broke on LookupError"
    assert ("first", "terminated") in log.everything()


def test_a_deaf_child_is_killed_after_its_time(log: HeardLog, child: MakeChild) -> None:
    """A process that ignores SIGTERM is killed, and the log says so."""
    with running([Stage((child("worker-1", DEAF, 0.2),))], log) as supervisor:
        log.wait_for("worker-1", "up")
        pid = supervisor.pid("worker-1")
        supervisor.stop()
        supervisor.join()

    assert pid is not None
    assert not is_alive(pid)
    assert any("killed" in line for label, line in log.everything() if label == OWN)


def test_a_second_request_to_stop_kills(log: HeardLog, child: MakeChild) -> None:
    """Who asks twice does not wait for the grace of a process that hangs."""
    with running([Stage((child("worker-1", DEAF, 600.0),))], log) as supervisor:
        log.wait_for("worker-1", "up")
        pid = supervisor.pid("worker-1")
        supervisor.stop()
        supervisor.kill()
        supervisor.join()

    assert pid is not None
    assert not is_alive(pid)


def test_children_have_groups_of_their_own(log: HeardLog, child: MakeChild) -> None:
    """Ctrl-C at a terminal reaches the supervisor alone."""
    with running([Stage((child("worker-1", STEADY),))], log) as supervisor:
        log.wait_for("worker-1", "up")
        pid = supervisor.pid("worker-1")
        assert pid is not None

        assert os.getpgid(pid) == pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_children_do_not_outlive_a_killed_supervisor() -> None:
    """SIGKILL of the whole command leaves no child: the kernel tells each of them."""
    program = f"""
import os, sys, threading
from cli.children import ChildSpec
from cli.logs import LogStream
from cli.supervisor import Stage, Supervisor
spec = ChildSpec("steady", (sys.executable, "-S", "-c", {STEADY!r}), os.environ)
supervisor = Supervisor([Stage((spec,))], LogStream(sys.stdout))
supervisor.start()
while supervisor.pid("steady") is None:
    threading.Event().wait(0.01)
print("pid", supervisor.pid("steady"), flush=True)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        heard = [parent.stdout.readline(), parent.stdout.readline()]
        pid = next(int(line.split()[1]) for line in heard if line.startswith("pid"))
        parent.kill()
        parent.wait()

    wait_until(lambda: not is_alive(pid), WAIT_S)


@pytest.mark.parametrize(
    ("deaths", "expected"), [(1, 0.25), (2, 0.5), (3, 1.0), (7, 15.0), (10_000, 15.0)]
)
def test_backoff_doubles_up_to_its_most(deaths: int, expected: float) -> None:
    """Each death in a row doubles the wait, and no number of deaths overflows it."""
    assert Backoff().delay_s(deaths) == expected


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-9, "SIGKILL")])
def test_exits_are_told_in_words(code: int, words: str) -> None:
    """A signal is named, a code is a number."""
    assert describe_exit(code) == words
