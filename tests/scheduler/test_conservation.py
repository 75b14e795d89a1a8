"""Whatever happens in whatever order, the books balance and each job ends once."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from benchmarks.books import Books
from scheduler.queue import Claim
from shared.errors import SpeechError
from tests.conftest import as_redis_7
from tests.scheduler.conftest import QUEUE, Deployment, FakeClock, queue_settings, terminal


class Queue(RuleBasedStateMachine):
    """Random admits, claims, frames, cancels, departures, lapses, hand-backs and crashes.

    A crash is any step that simply doesn't follow: a claim that is never used, a hint never pushed.
    """

    claims: Bundle[Claim] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._clock = FakeClock(self._patch)
        self._loop = asyncio.new_event_loop()
        server = fakeredis.FakeServer(version=(7, 0, 0))
        self.d = Deployment(
            as_redis_7(fakeredis.FakeRedis(server=server)),
            fakeredis.FakeAsyncRedis(server=server),
            queue_settings(min_queue_depth=6, queue_depth_per_lane=1),
            self._clock.advance_ms,
        )
        self._numbers = count()
        self._patch.setattr(self.d.admission, "new_job_id", lambda: f"t-{next(self._numbers)}")
        self.work = self.d.worker(lanes=3)
        self.jobs: set[str] = set()
        self.listeners: set[tuple[str, str]] = set()
        self.refusals: set[str] = set()

    def teardown(self) -> None:
        self._loop.run_until_complete(self.d.aredis.aclose())
        self._loop.close()
        self._patch.undo()

    @rule(
        number=st.integers(0, 5),
        turn=st.sampled_from([None, "t1", "t2"]),
        timeout_ms=st.sampled_from([500, 5000, 30_000]),
        gateway=st.sampled_from(["g1", "g2"]),
        priority=st.sampled_from(["interactive", "batch"]),
        principal=st.sampled_from(["p", "q"]),
        max_frames=st.integers(1, 50),
    )
    def admit(
        self,
        number: int,
        turn: str | None,
        timeout_ms: int,
        gateway: str,
        priority: str,
        principal: str,
        max_frames: int,
    ) -> None:
        listener = f"{gateway}|{number}"
        self.work.heartbeat({}, lanes=3)
        try:
            admitted = self._loop.run_until_complete(
                self.d.admit(
                    f"r{number}",
                    cancellation_id=turn,
                    timeout_ms=timeout_ms,
                    listener=listener,
                    priority=priority,
                    principal=principal,
                    max_frames=max_frames,
                )
            )
        except SpeechError as error:
            self.refusals.add(error.code)
            return
        self.jobs.add(admitted.job_id)
        if admitted.kind != "replay":
            self.listeners.add((admitted.job_id, listener))

    @rule(target=claims, busy=st.integers(0, 1))
    def claim(self, busy: int) -> Any:
        claim = self.work.claim(f"e{next(self._numbers)}", busy_lanes=busy)
        return claim if isinstance(claim, Claim) else None

    @rule(claim=claims, index=st.integers(0, 4))
    def post(self, claim: Claim | None, index: int) -> None:
        if claim is not None:
            self.d.post(self.work, claim, index)

    @rule(claim=claims)
    def renew(self, claim: Claim | None) -> None:
        if claim is not None:
            self.work.renew([(claim.job_id, claim.execution)])

    @rule(
        claim=consumes(claims),
        reason=st.sampled_from(["stop", "length", "cancelled", "timeout", "error"]),
    )
    def end(self, claim: Claim | None, reason: str) -> None:
        if claim is not None:
            self.work.end(claim.job_id, claim.execution, terminal(reason))

    @rule(claim=consumes(claims), fault=st.booleans())
    def hand_back(self, claim: Claim | None, fault: bool) -> None:
        if claim is not None:
            self.work.hand_back(claim.job_id, claim.execution, fault=fault)

    @rule(
        number=st.integers(0, 5),
        kind=st.sampled_from(["request", "turn"]),
        principal=st.sampled_from(["p", "q"]),
    )
    def cancel(self, number: int, kind: Any, principal: str) -> None:
        id_ = f"r{number}" if kind == "request" else f"t{number % 2 + 1}"
        self._loop.run_until_complete(self.d.cancellation.cancel(principal, kind, id_))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.listeners:
            job_id, listener = data.draw(st.sampled_from(sorted(self.listeners)))
            self.listeners.discard((job_id, listener))
            self._loop.run_until_complete(self.d.listeners.departures.say(job_id, listener))

    @rule(milliseconds=st.sampled_from([100, 700, 2500, 7000]))
    def time_passes(self, milliseconds: int) -> None:
        self._clock.advance_ms(milliseconds)

    @rule()
    def reap(self) -> None:
        self.d.reaper.reap()

    @invariant()
    def every_live_job_is_in_exactly_one_set(self) -> None:
        waiting = members(self.d, self.d.keys.waiting(QUEUE))
        running = members(self.d, self.d.keys.running(QUEUE))
        states = {job: self.d.field(job, "state") for job in self.jobs}
        assert waiting == {job for job, state in states.items() if state == "waiting"}
        assert running == {job for job, state in states.items() if state == "running"}
        stats: Any = self.d.redis.hgetall(self.d.keys.stats(QUEUE))
        admitted, ended = int(stats.get(b"admitted", 0)), int(stats.get(b"ended", 0))
        assert admitted == len(waiting) + len(running) + ended
        assert Books.read(self.d.redis, "t").faults() == []

    @invariant()
    def frames_are_contiguous_and_the_end_is_one_and_last(self) -> None:
        for job_id in self.jobs:
            kinds = self.d.kinds(job_id)
            assert kinds.count("end") <= 1
            assert "end" not in kinds[:-1]
            frames = self._loop.run_until_complete(self.d.frames(job_id))
            assert [frame.index for frame in frames] == list(range(len(frames)))

    @invariant()
    def refusals_are_of_the_expected_kinds(self) -> None:
        assert self.refusals <= {"queue_full", "cancelled", "deadline_unmeetable"}

    @invariant()
    def text_goes_with_the_end(self) -> None:
        for job_id in self.jobs:
            has_text = bool(self.d.redis.hexists(self.d.keys.job(job_id), "payload"))
            assert has_text == (self.d.field(job_id, "state") in {"waiting", "running"})


def members(deployment: Deployment, key: str) -> set[str]:
    names: Any = deployment.redis.zrange(key, 0, -1)
    return {name.decode() for name in names}


TestQueue = Queue.TestCase
TestQueue.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
