"""Who is next: class first, round-robin between principals, first in first out for each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

import pytest

from benchmarks.books import Books
from scheduler.queue import Claim, WorkQueue
from shared.errors import SpeechError
from tests.scheduler.conftest import Deployment, terminal

PRINCIPALS: Final = ("a", "b", "c", "d")
CLASSES: Final = ("interactive", "batch")


@dataclass
class Line:
    """The plain rules of one class: what came back goes first, then it is principals' turns."""

    returned: list[tuple[int, str]] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    waiting: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def join(self, principal: str, place: int, job: str) -> None:
        if principal not in self.turns:
            self.turns.append(principal)
        self.waiting.setdefault(principal, []).append((place, job))
        self.waiting[principal].sort()

    def come_back(self, place: int, job: str) -> None:
        self.returned.append((place, job))
        self.returned.sort()

    def leave(self, job: str) -> None:
        self.returned = [each for each in self.returned if each[1] != job]
        for principal in list(self.turns):
            self.waiting[principal] = [each for each in self.waiting[principal] if each[1] != job]
            if not self.waiting[principal]:
                self.turns.remove(principal)

    def claim(self) -> str | None:
        if self.returned:
            return self.returned.pop(0)[1]
        if not self.turns:
            return None
        principal = self.turns.pop(0)
        _, job = self.waiting[principal].pop(0)
        if self.waiting[principal]:
            self.turns.append(principal)
        return job


class Trial:
    """Random steps on a queue, each told to the plain rules too."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.d = deployment
        self.dice = random.Random(seed)
        self.work = deployment.worker(lanes=100)
        self.lines = {name: Line() for name in CLASSES}
        self.classes: dict[str, str] = {}  # of every job, and whose it is, and its place
        self.owners: dict[str, tuple[str, str, int]] = {}
        self.waiting: set[str] = set()
        self.claims: dict[str, Claim] = {}
        self.claimed = 0

    async def step(self) -> None:
        self.work.heartbeat({}, lanes=100)
        await self.dice.choice(
            [
                *(self.admit, self.admit, self.admit, self.claim, self.claim),
                *(self.attach, self.cancel, self.hand_back, self.end),
            ]
        )()

    async def admit(self) -> None:
        principal, priority = self.dice.choice(PRINCIPALS), self.dice.choice(CLASSES)
        request_id = f"r{len(self.owners)}"
        admitted = await self.d.admit(
            request_id, principal=principal, priority=priority, timeout_ms=600_000
        )
        place = len(self.owners)
        self.owners[admitted.job_id] = (principal, request_id, place)
        self.classes[admitted.job_id] = priority
        self.waiting.add(admitted.job_id)
        self.lines[priority].join(principal, place, admitted.job_id)

    async def claim(self) -> None:
        expected = self.lines["interactive"].claim() or self.lines["batch"].claim()
        claim = self.work.claim(f"e{self.claimed}")
        self.claimed += 1
        if claim is None:
            assert expected is None
            return
        assert isinstance(claim, Claim)
        assert claim.job_id == expected
        self.waiting.remove(claim.job_id)
        self.claims[claim.job_id] = claim

    async def attach(self) -> None:
        """Somebody who waits for it asks for what may be batch work, whatever its state."""
        live = sorted(self.waiting | self.claims.keys())
        if not live:
            return
        job = self.dice.choice(live)
        principal, request_id, place = self.owners[job]
        admitted = await self.d.admit(request_id, principal=principal, listener="g1|2")
        assert (admitted.kind, admitted.job_id) == ("attached", job)
        if self.classes[job] == "batch" and job in self.waiting:
            was_returned = any(job == each for _, each in self.lines["batch"].returned)
            self.lines["batch"].leave(job)
            if was_returned:
                self.lines["interactive"].come_back(place, job)
            else:
                self.lines["interactive"].join(principal, place, job)
        self.classes[job] = "interactive"

    async def cancel(self) -> None:
        if self.waiting:
            job = self.dice.choice(sorted(self.waiting))
            principal, request_id, _ = self.owners[job]
            await self.d.cancellation.cancel(principal, "request", request_id)
            self.waiting.remove(job)
            self.lines[self.classes[job]].leave(job)

    async def hand_back(self) -> None:
        if self.claims:
            job = self.dice.choice(sorted(self.claims))
            claim = self.claims.pop(job)
            assert self.work.hand_back(job, claim.execution) == "waiting"
            self.waiting.add(job)
            self.lines[self.classes[job]].come_back(self.owners[job][2], job)

    async def end(self) -> None:
        if self.claims:
            job = self.dice.choice(sorted(self.claims))
            claim = self.claims.pop(job)
            self.work.end(job, claim.execution, terminal())


@pytest.mark.parametrize("seed", range(6))
async def test_claims_follow_the_plain_rules(deployment: Deployment, seed: int) -> None:
    """Whatever is admitted, attached, cancelled, handed back and ended, each claim takes the job
    that a plain model of the rules takes, and the books balance."""
    deployment.change(min_queue_depth=1000, max_queue_depth=1000, lease_ms=600_000)
    trial = Trial(deployment, seed)

    for _ in range(150):
        await trial.step()
        assert Books.read(deployment.redis, "t").faults() == []
    while trial.waiting:
        await trial.claim()

    assert trial.claimed > 20


def claim_all(deployment: Deployment, work: WorkQueue, jobs: dict[str, str]) -> list[str]:
    return [jobs[deployment.claim(work).job_id] for _ in jobs]


async def test_principals_take_turns(deployment: Deployment) -> None:
    """However many jobs one has in line, another's first is claimed after at most one of them."""
    work = deployment.worker()
    jobs = {}
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        jobs[(await deployment.admit(name, principal=name[0])).job_id] = name

    order = claim_all(deployment, work, jobs)

    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_nobody_starves(fake: Deployment) -> None:
    """One who floods the queue for as long as it likes takes every second claim and no more."""
    work = fake.worker(lanes=4)
    for number in range(8):
        await fake.admit(f"flood{number}", principal="greedy")
    jobs = {(await fake.admit(f"m{number}", principal="modest")).job_id for number in range(4)}

    claimed_modest = []
    for number in range(8, 16):
        await fake.admit(f"flood{number}", principal="greedy")
        claimed_modest.append(fake.claim(work).job_id in jobs)

    assert claimed_modest == [False, True] * 4


async def test_cancelling_costs_no_turn(deployment: Deployment) -> None:
    """Who gave up most of its jobs is no later with the rest than who had no more."""
    work = deployment.worker()
    jobs = {}
    for name in ("a1", "a2", "a3", "a4", "b1", "b2"):
        jobs[(await deployment.admit(name, principal=name[0])).job_id] = name
    for name in ("a1", "a2"):
        await deployment.cancellation.cancel("a", "request", name)
    left = {job: name for job, name in jobs.items() if name not in ("a1", "a2")}

    assert claim_all(deployment, work, left) == ["a3", "b1", "a4", "b2"]


async def test_batch_goes_last(deployment: Deployment) -> None:
    """Every interactive job goes before every batch job, also one that came back."""
    work = deployment.worker()
    jobs = {}
    for name, priority in (("x", "batch"), ("y", "batch"), ("i", "interactive")):
        jobs[(await deployment.admit(name, priority=priority)).job_id] = name
    first = deployment.claim(work)
    assert jobs[first.job_id] == "i"
    second = deployment.claim(work)
    work.hand_back(second.job_id, second.execution)
    jobs[(await deployment.admit("j")).job_id] = "j"
    left = {job: name for job, name in jobs.items() if name != "i"}

    assert claim_all(deployment, work, left) == ["j", "x", "y"]


async def test_a_caller_that_waits_lifts_batch_work(deployment: Deployment) -> None:
    """An interactive request that attaches to a waiting batch job makes it interactive."""
    work = deployment.worker()
    jobs = {}
    for name in ("x", "y", "z"):
        jobs[(await deployment.admit(name, priority="batch")).job_id] = name

    await deployment.admit("z", listener="g1|2")
    await deployment.admit("y", priority="batch", listener="g1|2")

    assert claim_all(deployment, work, jobs) == ["z", "x", "y"]


async def test_batch_fills_half_of_the_places(fake: Deployment) -> None:
    """The other half is left to those who wait, who may fill all that batch left."""
    fake.worker(lanes=2)
    for number in range(8):
        await fake.admit(f"x{number}", priority="batch")

    with pytest.raises(SpeechError) as caught:
        await fake.admit("x8", priority="batch")
    assert caught.value.code == "queue_full"
    load = (await fake.load.snapshot()).queue("t.demo.0123456789ab")
    assert (load.depth, load.batch_depth) == (8, 8)

    for number in range(8):
        await fake.admit(f"i{number}")
    with pytest.raises(SpeechError) as caught:
        await fake.admit("i8")
    assert caught.value.code == "queue_full"


async def test_classes_count_together_against_a_principal(fake: Deployment) -> None:
    """Waiting per principal is bounded over both classes."""
    fake.change(max_waiting_per_principal=2)
    fake.worker(lanes=4)
    await fake.admit("r1")
    await fake.admit("r2", priority="batch")

    with pytest.raises(SpeechError) as caught:
        await fake.admit("r3")

    assert caught.value.code == "too_many_waiting"


async def test_one_busy_worker_makes_itself_free_for_what_must_run_alone(
    deployment: Deployment,
) -> None:
    """The others pass it over; whoever is idle first takes it."""
    w1, w2, w3 = (deployment.worker(name) for name in ("w1", "w2", "w3"))
    poison = await deployment.admit("poison")
    claim = deployment.claim(w1)
    w1.hand_back(claim.job_id, claim.execution, fault=True)
    others = [(await deployment.admit(f"r{number}")).job_id for number in range(2)]

    assert w1.claim("e1", busy_lanes=1) == "solo"
    assert deployment.claim(w2, busy_lanes=1).job_id == others[0]
    assert w1.claim("e2", busy_lanes=1) == "solo"
    assert deployment.claim(w2, busy_lanes=2).job_id == others[1]
    assert w2.claim("e3", busy_lanes=3) == "solo"
    assert deployment.claim(w3).job_id == poison.job_id
    assert w1.claim("e4", busy_lanes=1) is None


async def test_one_worker_at_a_time_makes_room_for_what_must_run_alone(fake: Deployment) -> None:
    """However many such jobs there are; and a worker that is gone for too long is replaced."""
    w1, w2 = fake.worker("w1"), fake.worker("w2")
    for name in ("p1", "p2"):
        await fake.admit(name)
    for claim in [fake.claim(w1), fake.claim(w1)]:
        w1.hand_back(claim.job_id, claim.execution, fault=True)
    await fake.admit("r1")

    assert w1.claim("e1", busy_lanes=1) == "solo"
    assert not fake.claim(w2, busy_lanes=1).solo
    fake.advance_ms(fake.settings.lease_ms + 100)
    assert w2.claim("e2", busy_lanes=1) == "solo"
    assert w1.claim("e3", busy_lanes=1) == "solo"
    await fake.admit("r2")
    assert not fake.claim(w1, busy_lanes=1).solo


async def test_what_must_run_alone_lets_others_fill_the_lanes_in_between(
    deployment: Deployment,
) -> None:
    """Between two such jobs as many others are claimed as there are lanes, while others wait."""
    work = deployment.worker(lanes=2)
    for number in range(3):
        await deployment.admit(f"suspect{number}", timeout_ms=60_000)
    for claim in [deployment.claim(work) for _ in range(3)]:
        work.hand_back(claim.job_id, claim.execution, fault=True)
    for number in range(3):
        await deployment.admit(f"r{number}", timeout_ms=60_000)

    claims = [deployment.claim(work) for _ in range(6)]

    assert [claim.solo for claim in claims] == [True, False, False, True, False, True]
    assert Books.read(deployment.redis, "t").faults() == []


@pytest.mark.redis
async def test_the_rules_hold_at_the_memory_limit(real: Deployment) -> None:
    """What was let in is claimed, handed back, waited for and ended with Redis full."""
    w1, w2 = real.worker("w1", lapses=True), real.worker("w2")
    for number in range(4):
        await real.admit(f"r{number}", principal=f"p{number % 2}", timeout_ms=60_000)
    await real.admit("x", priority="batch", timeout_ms=60_000)
    used = int(real.redis.info("memory")["used_memory"])
    real.redis.config_set("maxmemory", used // 2)

    drained, broken = real.claim(w1), real.claim(w1)
    assert w1.hand_back(drained.job_id, drained.execution) == "waiting"
    assert w1.hand_back(broken.job_id, broken.execution, fault=True) == "waiting"
    assert real.claim(w2).job_id == drained.job_id
    others = [real.claim(w2, busy_lanes=1) for _ in range(2)]
    assert w2.claim("alone", busy_lanes=3) == "solo"
    alone = real.claim(w1)
    assert (alone.job_id, alone.solo) == (broken.job_id, True)
    assert real.post(w1, alone, 0) == ["ok"]
    assert w1.end(alone.job_id, alone.execution, terminal()).verdict == "ended"
    assert real.post(w2, others[0], 0) == ["ok"]
    await real.cancellation.cancel("p1", "request", "r3")
    w1.heartbeat({}, lanes=2, step_ms=3.0)
    real.reaper.reap()

    assert Books.read(real.redis, "t").faults() == []
    real.redis.config_set("maxmemory", 0)
