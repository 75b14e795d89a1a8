"""What the door holds a deadline against: the sum that it tells, less what sums had to spare."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.load import QueueLoad
from scheduler.queue import Claim, WorkQueue
from shared.errors import SpeechError
from shared.messages import Claimed
from tests.scheduler.conftest import QUEUE, Deployment, terminal

STEP_MS = 100.0
FORGET_MS = 60_000


@dataclass
class Door:
    """A deployment of one lane in a time that stands still, but for what it is told to move by."""

    deployment: Deployment
    work: WorkQueue
    numbers: int = 0

    async def let_in(self, frames: int, timeout_ms: int = 30_000, **changes: Any) -> str:
        self.numbers += 1
        self.work.heartbeat({}, lanes=1, step_ms=STEP_MS)
        admitted = await self.deployment.admit(
            f"r{self.numbers}", max_frames=frames, timeout_ms=timeout_ms, **changes
        )
        assert admitted.kind == "admitted"
        return admitted.job_id

    async def lets_in(self, frames: int, timeout_ms: int) -> bool:
        """Whether it would; who was let in is cancelled at once."""
        try:
            await self.let_in(frames, timeout_ms)
        except SpeechError:
            return False
        await self.deployment.cancellation.cancel("p", "request", f"r{self.numbers}")
        return True

    async def in_line(self, frames: int = 10, **changes: Any) -> tuple[Claim, str]:
        """One job that runs and one that waits for it; the latter's wait is no longer than told."""
        await self.let_in(20)
        running = self.deployment.claim(self.work)
        return running, await self.let_in(frames, **changes)

    def finish(self, claim: Claim, reason: str = "stop") -> None:
        self.deployment.post(self.work, claim, 0)
        self.work.end(claim.job_id, claim.execution, terminal(reason))

    async def sample(self, total_ms: int) -> float:
        """A job that waits and is done after so long. Returns what it was told more than that."""
        running, waiting = await self.in_line()
        self.keep_pace()
        told = float(self.deployment.field(waiting, "total_bound_ms") or "nan")
        self.deployment.advance_ms(total_ms // 2)
        self.finish(running)
        claim = self.deployment.claim(self.work)
        self.deployment.advance_ms(total_ms - total_ms // 2)
        self.finish(claim)
        self.keep_pace()
        return told - total_ms

    def keep_pace(self) -> None:
        """Sums go on being made with the warm-up's step, whatever was measured."""
        self.deployment.redis.hdel(self.deployment.keys.stats(QUEUE), "service_ms")

    def knows(self, **spread: float) -> None:
        """As if so much had been measured, just now."""
        now: Any = self.deployment.redis.time()
        known = {"ms": 0, "var": 0, "low_ms": 0, "weight": 100, "at_ms": 1000 * now[0], **spread}
        self.deployment.redis.hset(
            self.deployment.keys.stats(QUEUE),
            mapping={f"spare_{name}": value for name, value in known.items()},
        )

    def measured(self, name: str) -> float:
        said: Any = self.deployment.redis.hget(self.deployment.keys.stats(QUEUE), f"spare_{name}")
        return float(said or 0)

    async def load(self) -> QueueLoad:
        return (await self.deployment.load.snapshot()).queue(QUEUE)


@pytest.fixture
def door(fake: Deployment) -> Door:
    return Door(fake, fake.worker(lanes=1))


async def test_before_anything_is_known_the_whole_sum_is_held(door: Door) -> None:
    """The wait's bound and the job's own service: 2 s and 1 s."""
    running, _ = await door.in_line(frames=0)

    assert await door.lets_in(10, timeout_ms=3000)
    assert not await door.lets_in(10, timeout_ms=2999)
    assert door.deployment.state(running.job_id) == "running"


@pytest.mark.parametrize("seed", range(3))
async def test_what_sums_had_to_spare_is_weighed_by_its_age(door: Door, seed: int) -> None:
    """Mean and variance are those of all samples, one of a minute ago at 1 / e of a new one."""
    chance = random.Random(seed)
    samples: list[tuple[float, float]] = []
    clock_ms = 0.0
    for _ in range(12):
        pause_ms, total_ms = chance.randrange(0, 40_000), chance.randrange(500, 6000)
        door.deployment.advance_ms(pause_ms)
        clock_ms += pause_ms + total_ms
        samples.append((clock_ms, await door.sample(total_ms)))

    weights = [math.exp((at - clock_ms) / FORGET_MS) for at, _ in samples]
    total = sum(weights)
    mean = sum(w * x for w, (_, x) in zip(weights, samples, strict=True)) / total
    var = sum(w * (x - mean) ** 2 for w, (_, x) in zip(weights, samples, strict=True)) / total
    low = min(0.0, *(w * x for w, (_, x) in zip(weights, samples, strict=True)))
    assert door.measured("weight") == pytest.approx(total, rel=0.01)
    assert door.measured("ms") == pytest.approx(mean, abs=5)
    assert door.measured("var") == pytest.approx(var, rel=0.01)
    assert door.measured("low_ms") == pytest.approx(low, abs=5)


async def test_nearly_all_of_those_let_in_keep_to_it(door: Door) -> None:
    """What all but one in a thousand had to spare comes off the sum, and no more than that."""
    await door.in_line(frames=0)
    stats = door.deployment.keys.stats(QUEUE)
    door.deployment.redis.hset(stats, "wait_over_ms", 1500)
    door.knows(ms=1500, var=300**2)  # 3.1 deviations below the mean: 570

    assert await door.lets_in(10, timeout_ms=2430)
    assert not await door.lets_in(10, timeout_ms=2429)


async def test_where_sums_were_too_short_more_is_held(door: Door) -> None:
    """By as much as one of them was too short, however far samples lie apart."""
    await door.in_line(frames=0)
    door.knows(ms=200, var=900**2, low_ms=-400)

    assert await door.lets_in(10, timeout_ms=3400)
    assert not await door.lets_in(10, timeout_ms=3399)


async def test_good_news_alone_makes_no_deadline_harder(door: Door) -> None:
    """Waits that become much shorter than told (a worker came) add nothing to the sum."""
    await door.in_line(frames=0)
    door.knows(ms=3000, var=2500**2)

    assert await door.lets_in(10, timeout_ms=3000)


@pytest.mark.parametrize(
    "unknown", [{"weight": 19.0}, {"at_ms": 0.0}, {"at_ms": 9e12}], ids=["few", "old", "ahead"]
)
@pytest.mark.parametrize("known", [{"ms": 1500.0}, {"ms": -1500.0, "low_ms": -1500.0}])
async def test_little_or_old_knowledge_is_none(
    door: Door, known: dict[str, float], unknown: dict[str, float]
) -> None:
    """Of few samples, or when the last is older than a minute or of a clock that was put back, the
    plain sum is held: a door that turns away whoever has to wait would learn nothing more."""
    await door.in_line(frames=0)
    door.knows(**known, **unknown)

    assert await door.lets_in(10, timeout_ms=3000)
    assert not await door.lets_in(10, timeout_ms=2999)


async def test_who_ran_out_of_time_was_told_too_little(door: Door) -> None:
    """A job that is cut short counts as too long by what was over when it was."""
    running, waiting = await door.in_line(timeout_ms=3000)
    door.deployment.advance_ms(2600)
    door.finish(running)
    claim = door.deployment.claim(door.work)
    assert claim.job_id == waiting
    door.deployment.advance_ms(900)
    door.finish(claim, "timeout")

    assert door.measured("weight") == 1
    assert door.measured("low_ms") == pytest.approx(3000 - 3500)


async def test_who_was_never_claimed_was_told_too_little(door: Door) -> None:
    """A job whose deadline passes in the line counts too."""
    _, waiting = await door.in_line(timeout_ms=3000)
    door.deployment.advance_ms(4000)
    door.deployment.reap()

    assert door.deployment.state(waiting) == "ended"
    assert door.measured("low_ms") == pytest.approx(3000 - 4000)


async def test_only_what_the_door_could_know_is_measured(door: Door) -> None:
    """No cancel, no failure, no batch work, nobody who found a free lane, nothing begun twice."""
    for reason in ("cancelled", "error"):
        running, _ = await door.in_line()
        door.finish(running)
        door.finish(door.deployment.claim(door.work), reason)
    running, _ = await door.in_line(priority="batch")
    door.finish(running)
    door.finish(door.deployment.claim(door.work))
    running, _ = await door.in_line()
    door.finish(running)
    claim = door.deployment.claim(door.work)
    door.work.hand_back(claim.job_id, claim.execution, fault=True)
    door.finish(door.deployment.claim(door.work))

    assert door.measured("weight") == 0


async def test_a_batch_job_that_became_urgent_is_no_measure(door: Door) -> None:
    """It stood in another line when it was told."""
    running, _ = await door.in_line(priority="batch")
    again = await door.deployment.admit(f"r{door.numbers}", max_frames=10, timeout_ms=30_000)
    assert again.kind == "attached"
    door.finish(running)
    door.finish(door.deployment.claim(door.work))

    assert door.measured("weight") == 0


async def test_the_margin_is_published_and_the_wait_is_not_moved_by_it(door: Door) -> None:
    """``estimated_wait_ms`` and Retry-After stay the mean; the margin is what comes on top."""
    running, _ = await door.in_line(frames=0)
    stats = door.deployment.keys.stats(QUEUE)
    door.deployment.redis.hset(stats, "wait_over_ms", 1200)
    door.knows(ms=1300, var=250**2)  # spares 525

    load = await door.load()
    with pytest.raises(SpeechError) as caught:
        await door.let_in(10, timeout_ms=1)

    assert (load.estimated_wait_ms, load.deadline_margin_ms) == (800, 1200 - 525)
    assert caught.value.retry_after_s == pytest.approx(1.8)
    door.finish(running)
    door.finish(door.deployment.claim(door.work))
    assert (await door.load()).deadline_margin_ms == 0


async def test_the_margin_is_never_below_the_estimate(door: Door) -> None:
    """Where all are done much sooner than told, a deadline is held against the estimate."""
    await door.in_line(frames=0)
    door.knows(ms=5000)

    load = await door.load()

    assert (load.estimated_wait_ms, load.deadline_margin_ms) == (2000, 0)
    assert not await door.lets_in(10, timeout_ms=2999)


@pytest.mark.timeout(120)
async def test_lengths_by_chance_cut_next_to_nobody_short(door: Door) -> None:
    """Twice as many come as can be spoken, and use what part of their budget they like: whom the
    door lets in are done in time, but for one."""
    crowd = Crowd(door, lanes=4, seed=5)
    for _ in range(300):
        await crowd.next_one()

    assert crowd.let_in > 100
    assert crowd.cut <= 1


@dataclass
class Crowd:
    """Callers who come by chance, and lanes that serve them first in, first out."""

    door: Door
    lanes: int
    seed: int
    let_in: int = 0
    cut: int = 0
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.door.work.heartbeat({}, lanes=self.lanes, step_ms=STEP_MS)
        self.busy: list[tuple[float, Claim, bool]] = []
        self.deadlines: dict[str, float] = {}
        self.lengths: dict[str, float] = {}

    async def next_one(self) -> None:
        """The next caller of some length and patience, after all that happens before."""
        frames = self.chance.choice([10, 30, 30, 80])
        usual_ms = 37.5 * STEP_MS * 0.65
        pause_ms = self.chance.expovariate(2 * self.lanes / usual_ms)
        self._until(self.now_ms + pause_ms)
        if self.door.numbers % 20 == 0:
            self.door.deployment.worker(lanes=self.lanes)
        timeout_ms = int(max(self.chance.choice([10_000, 20_000]), 1.5 * frames * STEP_MS))
        self.door.numbers += 1
        try:
            admitted = await self.door.deployment.admit(
                f"r{self.door.numbers}", max_frames=frames, timeout_ms=timeout_ms
            )
        except SpeechError:
            return
        self.let_in += 1
        self.deadlines[admitted.job_id] = self.now_ms + timeout_ms
        self.lengths[admitted.job_id] = frames * STEP_MS * self.chance.uniform(0.3, 1.0)
        self._claim()

    def _until(self, until_ms: float) -> None:
        while self.busy and min(self.busy, key=lambda each: each[0])[0] <= until_ms:
            self.busy.sort(key=lambda each: each[0])
            at_ms, claim, whole = self.busy.pop(0)
            self._move(at_ms)
            self.door.finish(claim, "stop" if whole else "timeout")
            self._claim()
        self._move(until_ms)

    def _move(self, to_ms: float) -> None:
        self.door.deployment.advance_ms(to_ms - self.now_ms)  # type: ignore[arg-type]
        self.now_ms = to_ms

    def _claim(self) -> None:
        while len(self.busy) < self.lanes:
            self.door.numbers += 1
            claim = self.door.work.claim(f"e{self.door.numbers}", busy_lanes=len(self.busy))
            if not isinstance(claim, Claim):
                return
            done_ms = self.now_ms + self.lengths[claim.job_id]
            whole = done_ms <= self.deadlines[claim.job_id]
            self.cut += not whole
            self.busy.append((min(done_ms, self.deadlines[claim.job_id] + 1), claim, whole))


OUTAGE_MS = 5000


async def through_an_outage(door: Door, seen: str) -> None:
    """A job that waits and one that speaks while nobody reaps, as when Redis is away. Its end is
    noticed by the reaper ``before`` the jobs go on, or ``after``.
    """
    door.deployment.reap()
    running, waiting = await door.in_line()
    door.deployment.advance_ms(OUTAGE_MS)
    door.work.heartbeat({}, lanes=1, step_ms=STEP_MS)
    if seen == "before":
        door.deployment.reap()
        door.deployment.advance_ms(1)
    door.finish(running)
    claim = door.deployment.claim(door.work)
    assert claim.job_id == waiting
    door.deployment.advance_ms(900)
    door.finish(claim)
    door.deployment.reap()


@pytest.mark.parametrize("seen", ["before", "after"])
async def test_an_outage_is_no_measure(door: Door, seen: str) -> None:
    """Time in which Redis was away says nothing of how long jobs take: neither the door's margin
    nor the estimate nor the pace knows those that were there. Who began after it is a measure of
    the pace."""
    await through_an_outage(door, seen)

    load = await door.load()
    assert door.measured("weight") == 0
    assert door.deployment.redis.hget(door.deployment.keys.stats(QUEUE), "wait_over_weight") is None
    assert (load.estimated_wait_error_ms, load.estimated_wait_bias_ms) == (0, 0)
    assert load.mean_service_ms == (900 if seen == "before" else 0)


async def test_what_comes_after_an_outage_is_measured_again(door: Door) -> None:
    """From the first job on that the door lets in when it is over."""
    await through_an_outage(door, "after")
    door.deployment.advance_ms(500)
    door.deployment.reap()

    spare = await door.sample(1600)

    assert door.measured("weight") == 1
    assert door.measured("ms") == pytest.approx(spare)
    assert (await door.load()).mean_service_ms == 0  # kept at the warm-up's pace by the sample


async def test_a_deadline_that_passed_in_an_outage_is_no_measure(door: Door) -> None:
    """Who ran out of time while nobody could be served was told nothing wrong."""
    door.deployment.reap()
    _, waiting = await door.in_line(timeout_ms=3000)
    door.deployment.advance_ms(OUTAGE_MS)
    door.deployment.reap()

    assert door.deployment.field(waiting, "finish_reason") == "timeout"
    assert door.measured("weight") == 0


async def test_time_without_a_ready_lane_is_no_measure(door: Door) -> None:
    """A wait for the next worker is none for those ahead."""
    running, _ = await door.in_line()
    door.finish(running)
    door.work.heartbeat({}, lanes=0)
    for _ in range(3):
        door.deployment.reap()
        door.deployment.advance_ms(1000)
    door.work.heartbeat({}, lanes=1, step_ms=STEP_MS)
    door.finish(door.deployment.claim(door.work))

    assert door.measured("weight") == 0


async def test_an_outage_of_a_clock_that_was_put_back_is_forgotten(door: Door) -> None:
    """What was noted of a time that is yet to come keeps nothing from being measured."""
    door.deployment.reap()
    door.deployment.redis.hset(door.deployment.keys.reaper, "away_ms", 9_000_000_000_000)
    door.deployment.redis.hset(door.deployment.keys.stats(QUEUE), "unserved_ms", 9_000_000_000_000)

    await door.sample(1600)

    assert door.measured("weight") == 1


async def test_a_clock_put_back_is_no_measure(fake: Deployment) -> None:
    """What ran and waited meanwhile took no time below 0, and neither what lanes take nor what the
    door knows of waits is told by it.
    """
    work = fake.worker()
    fake.reap()
    for number in range(4):
        await fake.admit(f"r{number}")
    running = [fake.claim(work) for _ in range(2)]
    fake.advance_ms(500)
    fake.reap()

    fake.advance_ms(-3_600_000)
    for claim in running:
        fake.post(work, claim, 0)
        work.end(claim.job_id, claim.execution, terminal())

    waited = fake.claim(work)
    told = [event for event in fake.told(waited.job_id) if isinstance(event, Claimed)]
    assert (waited.queue_wait_ms, told[0].queue_wait_ms) == (0, 0)
    for claim in running:
        record = await fake.results.read(claim.job_id)
        assert record is not None
        assert record.end is not None
        assert record.end.first_audio_latency_ms == 0
        assert record.end.full_generation_latency_ms == 0
    load = (await fake.load.snapshot()).queue(QUEUE)
    assert (load.mean_service_ms, load.estimated_wait_error_ms) == (0.0, 0.0)
    assert not fake.redis.hexists(fake.keys.stats(QUEUE), "spare_at_ms")
