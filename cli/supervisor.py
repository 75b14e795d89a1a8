"""Keeps the processes of a stack running: started in order, restarted, stopped in reverse order.

One thread owns all children and does everything to them: a tethered child hears of the death of the
thread that started it. Other threads ask by putting an event on its queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Literal

from cli.children import Child, ChildSpec, describe_exit
from cli.logs import OWN, LogStream
from shared.environment import BAD_SETTING

EARLY_DEATHS: Final = 3
"""So many deaths of one process before the stack is ready, and the start has failed."""
GATE_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Stage:
    """Processes that start and stop together. ``gate`` says when the next stage may start."""

    children: tuple[ChildSpec, ...]
    gate: Callable[[], bool] | None = None
    gate_wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a restart. A run of ``healthy_s`` wipes the slate clean."""

    first_s: float = 0.25
    most_s: float = 15.0
    healthy_s: float = 20.0

    def delay_s(self, deaths_in_a_row: int) -> float:
        return min(self.most_s, self.first_s * 2.0 ** min(deaths_in_a_row - 1, 16))


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A process that did not come up, with the last that it said."""

    name: str
    why: str
    output: tuple[str, ...] = ()


@dataclass(slots=True)
class _Post:
    """One place to be filled: the child in it and its history."""

    spec: ChildSpec
    child: Child | None = None
    started_at: float = 0.0
    deaths_in_a_row: int = 0
    restarts: int = 0
    restart_at: float | None = field(default=None)


_Order = Literal["stop", "kill", "ready"]


class Supervisor:
    """Runs stages of processes until told to stop."""

    def __init__(
        self, stages: Sequence[Stage], log: LogStream, backoff: Backoff | None = None
    ) -> None:
        self._stages = tuple(stages)
        self._log = log
        self._backoff = backoff or Backoff()
        self._posts = {spec.name: _Post(spec) for stage in self._stages for spec in stage.children}
        self._events: SimpleQueue[Child | _Order] = SimpleQueue()
        self._stopping = False
        self._hurrying = False
        self._ready = False
        self._thread = threading.Thread(target=self._run, name="supervisor")
        self.failure: StartFailure | None = None
        self.failed = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def ready(self) -> None:
        """The stack serves: from now on a process that dies is started again without end."""
        self._events.put("ready")

    def stop(self) -> None:
        """Begin the ordered stop. Returns at once."""
        self._events.put("stop")

    def kill(self) -> None:
        """Stop without patience. Safe in a signal handler."""
        self._events.put("kill")

    def join(self) -> None:
        self._thread.join()

    @property
    def restarts(self) -> dict[str, int]:
        """How often each process has been started again."""
        return {name: post.restarts for name, post in self._posts.items()}

    def pid(self, name: str) -> int | None:
        child = self._posts[name].child
        return None if child is None else child.pid

    def _run(self) -> None:
        try:
            for stage in self._stages:
                if self._stopping:
                    break
                self._start_stage(stage)
            while not self._stopping:
                self._take(self._next_event(self._until_next_restart()))
                self._start_due()
        except Exception as error:  # a defect, which must not leave who waits for us waiting
            self._fail(StartFailure(OWN, f"it broke on {type(error).__name__}"))
            raise
        finally:
            for stage in reversed(self._stages):
                self._stop_stage(stage)

    def _start_stage(self, stage: Stage) -> None:
        for spec in stage.children:
            self._start(self._posts[spec.name])
        deadline = time.monotonic() + stage.gate_wait_s
        while stage.gate is not None and not self._stopping and not stage.gate():
            if time.monotonic() > deadline:
                self._fail(StartFailure(stage.children[0].name, "did not answer in time"))
                return
            self._take(self._next_event(GATE_POLL_S))
            self._start_due()

    def _start(self, post: _Post) -> None:
        post.restart_at = None
        post.started_at = time.monotonic()
        try:
            post.child = Child(post.spec, self._log, self._events.put)
        except OSError as error:
            if not self._ready:
                self._fail(StartFailure(post.spec.name, str(error)))
                return
            # No process or thread to be had just now: no reason to end those that serve.
            post.deaths_in_a_row += 1
            self._plan_restart(post, f"{post.spec.name} can't start now ({error})")

    def _start_due(self) -> None:
        now = time.monotonic()
        for post in self._posts.values():
            if not self._stopping and post.restart_at is not None and post.restart_at <= now:
                post.restarts += 1
                self._start(post)

    def _until_next_restart(self) -> float | None:
        due = [post.restart_at for post in self._posts.values() if post.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _next_event(self, timeout_s: float | None) -> Child | _Order | None:
        try:
            return self._events.get(timeout=timeout_s)
        except Empty:
            return None

    def _take(self, event: Child | _Order | None) -> None:
        if isinstance(event, Child):
            self._buried(event)
        elif event == "ready":
            self._ready = True
        elif event is not None:
            self._stopping = True
            self._hurrying = self._hurrying or event == "kill"

    def _buried(self, child: Child) -> None:
        """A child has ended: plan its restart, or fail the start."""
        post = self._posts[child.spec.name]
        post.child = None
        if self._stopping:
            return
        lived = time.monotonic() - post.started_at
        post.deaths_in_a_row = 1 if lived > self._backoff.healthy_s else post.deaths_in_a_row + 1
        why = describe_exit(child.returncode)
        if not self._ready and (
            child.returncode == BAD_SETTING or post.deaths_in_a_row >= EARLY_DEATHS
        ):
            self._fail(StartFailure(post.spec.name, why, self._log.tail(post.spec.name)))
            return
        self._plan_restart(post, f"{post.spec.name} ended ({why}) after {lived:.1f} s")

    def _plan_restart(self, post: _Post, reason: str) -> None:
        delay_s = self._backoff.delay_s(post.deaths_in_a_row)
        post.restart_at = time.monotonic() + delay_s
        self._log.write(OWN, f"{reason}; restart {post.restarts + 1} in {delay_s:g} s")

    def _fail(self, failure: StartFailure) -> None:
        self.failure = self.failure or failure
        self._stopping = True
        self.failed.set()
        self._log.write(OWN, f"{failure.name} can't start ({failure.why})")

    def _stop_stage(self, stage: Stage) -> None:
        posts = [self._posts[spec.name] for spec in stage.children]
        began = time.monotonic()
        for post in posts:
            if post.child is not None:
                post.child.terminate()
        while running := [post for post in posts if post.child is not None]:
            waited = time.monotonic() - began
            left = max(post.spec.stop_wait_s for post in running) - waited
            if left > 0 and not self._hurrying:
                self._take(self._next_event(left))
                continue
            for post in running:
                if post.child is not None and (self._hurrying or post.spec.stop_wait_s <= waited):
                    self._end_now(post, hurried=self._hurrying)
            self._take(self._next_event(1.0))

    def _end_now(self, post: _Post, *, hurried: bool) -> None:
        assert post.child is not None
        if not hurried:
            self._log.write(OWN, f"{post.spec.name} did not stop in time and is killed")
        post.child.kill()
