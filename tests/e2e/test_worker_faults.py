"""Real worker processes on the demo model that are killed, stalled and replaced in mid-speech."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gpu_worker.model.demo import build_demo
from scheduler.admission import Admission, AdmitRequest
from scheduler.carrier import Carrier
from scheduler.connections import connect, connect_async
from scheduler.results import JobRecord, Results
from shared.governance.artifacts import Artifact
from shared.keys import Keys
from shared.messages import End, FrameRecord, SpeechJob, Terminal
from shared.settings import QueueSettings
from tests.conftest import WAIT_S, RedisServer, heartbeats, redis_in, until

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

ROOT = Path(__file__).parents[2]
SEED = 7
FRAMES = 80
TEXT = "Hello there, how are you?"
LONG_TEXT = "The quick brown fox jumps over the lazy dog. " * 20
"""Long enough that its prefill can be met."""


class Crew:
    """Worker processes of one deployment, and what a test needs to see of them."""

    def __init__(self, server: RedisServer, artifact: Artifact, log: Path) -> None:
        self.log = log
        self.env = {
            "REDIS_URL": server.url,
            "PSIONIC_CSM_ARTIFACTS": str(artifact.directory),
            "PSIONIC_CSM_LANES": "2",
            "PSIONIC_CSM_TORCH_THREADS": "1",
            "PSIONIC_CSM_LEASE_MS": "2000",
            "PSIONIC_CSM_RENEW_MS": "100",
            "PSIONIC_CSM_REAP_INTERVAL_MS": "200",
            "PSIONIC_CSM_LISTENER_TTL_MS": "60000",
        }
        self.settings = QueueSettings.from_env(self.env)
        self.keys = Keys(self.settings.namespace)
        self.artifact = artifact
        self.queue = artifact.queue_name(self.settings.namespace)
        self.redis: redis.Redis = connect(server.url)
        self.carrier = Carrier(self.redis, self.settings.namespace, self.queue)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def hire(self, **env: str) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpu_worker"],
                env={**os.environ, **self.env, **env},
                cwd=ROOT,
                stdout=log,
            )
        self.processes[process.pid] = process
        return process

    async def at_least(self, count: int) -> None:
        """So many live workers, all of them ready."""
        for pid, process in tuple(self.processes.items()):
            if process.poll() is not None:
                del self.processes[pid]
        while len(self.processes) < count:
            self.hire()
        await until(lambda: self.processes.keys() <= self.ready_pids())

    def dismiss(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(timeout=WAIT_S)
        self.redis.close()

    def documents(self) -> dict[str, dict[str, Any]]:
        """What each live worker says of itself."""
        return heartbeats(self.redis, self.keys.namespace)

    def ready_pids(self) -> set[int]:
        return {said["pid"] for said in self.documents().values() if said["state"] == "ready"}

    def field(self, job_id: str, name: str) -> str:
        value: Any = self.redis.hget(self.keys.job(job_id), name)
        return "" if value is None else str(value.decode())

    def pid_of(self, worker_id: str) -> int:
        """A worker's pid stands in its id, between the host and what makes it unique."""
        return int(worker_id.split("-")[-2])


class Caller:
    """One who asks for speech, and hears what became of it."""

    def __init__(self, crew: Crew, client: redis.asyncio.Redis) -> None:
        self._crew = crew
        self._admission = Admission(client, crew.settings)
        self._results = Results(client, crew.settings.namespace)
        self._asked = 0

    async def ask(self, *, push: bool = True, **changes: Any) -> str:
        """A new job of this module's one kind; its id."""
        self._asked += 1
        options: dict[str, Any] = {
            "request_id": f"{id(self)}-{self._asked}",
            "cancellation_id": None,
            "input": TEXT,
            "artifact_id": self._crew.artifact.artifact_id,
            "voice_profile_id": self._crew.artifact.voices.profiles[0].profile_id,
            "speaker": 0,
            "context_policy": "none",
            "max_frames": FRAMES,
            "temperature": 0.9,
            "top_k": 50,
            "seed": SEED,
        }
        job = SpeechJob(**{**options, **changes})
        job_id = self._admission.new_job_id()
        request = AdmitRequest("p", self._crew.queue, "f", 30_000, job)
        await self._admission.admit(request, job_id, "gateway|1")
        if push:
            self._crew.carrier.push(job_id)
        return job_id

    async def heard(self, job_id: str) -> int:
        """Frames on the stream so far."""
        return (await self._record(job_id)).frame_count

    async def end(self, job_id: str) -> End:
        await until(lambda: self._crew.field(job_id, "state") == "ended")
        end = (await self._record(job_id)).end
        assert end is not None
        return end

    async def frames(self, job_id: str) -> list[FrameRecord]:
        return [frame async for frame in self._results.frames(job_id)]

    async def answer(self, job_id: str) -> Terminal:
        """The terminal of a job that ended with a whole answer, its frames without a gap."""
        end = await self.end(job_id)
        assert end.terminal is not None
        indexes = [frame.index for frame in await self.frames(job_id)]
        assert indexes == list(range(end.terminal.generated_frame_count))
        return end.terminal

    async def _record(self, job_id: str) -> JobRecord:
        record = await self._results.read(job_id)
        assert record is not None
        return record


def digests(terminal: Terminal) -> tuple[str | None, ...]:
    return (
        terminal.finish_reason,
        terminal.codebook_frames_sha256,
        terminal.pcm16_sha256,
        terminal.wav_pcm16_digest,
    )


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """One deployment for the module; a test asks it for as many workers as it needs."""
    artifact = build_demo(tmp_path_factory.mktemp("artifact") / "tiny", "tiny")
    with redis_in(tmp_path_factory.mktemp("redis")) as server:
        crew = Crew(server, artifact, tmp_path_factory.mktemp("logs") / "workers.jsonl")
        yield crew
        crew.dismiss()


@pytest.fixture
async def caller(crew: Crew) -> AsyncIterator[Caller]:
    await crew.at_least(2)
    client = connect_async(f"{crew.settings.redis_url}")
    yield Caller(crew, client)
    await client.aclose()


@pytest.fixture
async def undisturbed(caller: Caller) -> tuple[str | None, ...]:
    """What the module's one kind of job says when nothing happens to it."""
    return digests(await caller.answer(await caller.ask()))


async def stopped_when(
    crew: Crew, caller: Caller, is_there: Callable[[str], bool], **job: Any
) -> tuple[str, int]:
    """A running job of which this holds, and the pid of its worker, which is stopped there.

    Another is asked for while the machine is too busy to stop one in time.
    """
    for _ in range(20):
        job_id = await caller.ask(**job)
        while crew.field(job_id, "state") != "ended":
            if crew.field(job_id, "worker_id") and is_there(job_id):
                pid = crew.pid_of(crew.field(job_id, "worker_id"))
                os.kill(pid, signal.SIGSTOP)
                if crew.field(job_id, "state") == "running" and is_there(job_id):
                    return job_id, pid
                os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.002)
    pytest.fail("no job was met on its way")


async def speaking(crew: Crew, caller: Caller, frames: int = 10) -> tuple[str, int]:
    """A job in mid-speech and the pid of its worker, which is stopped."""

    def has_come_far(job_id: str) -> bool:
        return int(crew.field(job_id, "frames")) >= frames

    return await stopped_when(crew, caller, has_come_far)


async def test_a_worker_killed_in_mid_speech(
    crew: Crew, caller: Caller, undisturbed: tuple[str | None, ...]
) -> None:
    """Another goes on where it broke off: the answer is bit for bit that of an undisturbed run."""
    job_id, pid = await speaking(crew, caller)

    os.kill(pid, signal.SIGKILL)
    answer = await caller.answer(job_id)

    assert digests(answer) == undisturbed
    assert crew.pid_of(answer.worker_id) != pid
    assert (await caller.end(job_id)).attempt == 2


async def test_a_worker_killed_before_its_first_frame(crew: Crew, caller: Caller) -> None:
    """A job that was claimed and not begun is spoken by another worker."""
    job_id, pid = await stopped_when(
        crew,
        caller,
        lambda job_id: crew.field(job_id, "frames") == "0",
        input=LONG_TEXT,
        max_frames=5,
    )

    os.kill(pid, signal.SIGKILL)
    begun = await caller.heard(job_id)
    answer = await caller.answer(job_id)

    assert begun == 0
    assert answer.generated_frame_count == 5
    assert crew.pid_of(answer.worker_id) != pid


async def test_a_worker_killed_between_rq_and_the_claim(
    crew: Crew, caller: Caller, undisturbed: tuple[str | None, ...]
) -> None:
    """An id that RQ gave to a worker which then died is put back, and nothing of it stays."""
    intermediate = f"{crew.carrier.list_key}:intermediate"
    job_id = await caller.ask(push=False)
    crew.redis.rpush(intermediate, job_id)

    answer = await caller.answer(job_id)

    assert digests(answer) == undisturbed
    await until(lambda: crew.redis.llen(intermediate) == 0)


async def test_a_worker_that_stalls_past_its_lease(
    crew: Crew, caller: Caller, undisturbed: tuple[str | None, ...]
) -> None:
    """It wakes to find its job gone: not one event comes from it, and it serves on."""
    job_id, pid = await speaking(crew, caller)
    stalled = crew.field(job_id, "worker_id")

    answer = await caller.answer(job_id)
    events = crew.redis.xinfo_stream(crew.keys.events(job_id))
    await until(lambda: stalled not in crew.documents())
    os.kill(pid, signal.SIGCONT)
    await until(lambda: crew.documents().get(stalled, {}).get("in_flight") == 0)

    assert digests(answer) == undisturbed
    assert crew.redis.xinfo_stream(crew.keys.events(job_id)) == events
    assert crew.documents()[stalled]["state"] == "ready"


async def test_a_worker_replaced_in_mid_speech(
    crew: Crew, caller: Caller, undisturbed: tuple[str | None, ...]
) -> None:
    """Told to stop twice, it hands back: nobody hears it, and it is no attempt."""
    job_id, pid = await speaking(crew, caller)

    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)
    await until(lambda: any(said["state"] == "draining" for said in crew.documents().values()))
    os.kill(pid, signal.SIGTERM)
    code = crew.processes[pid].wait(timeout=WAIT_S)
    answer = await caller.answer(job_id)

    assert code == 0
    assert digests(answer) == undisturbed
    assert (await caller.end(job_id)).attempt == 1


async def test_a_worker_drained_in_mid_speech(crew: Crew, caller: Caller) -> None:
    """Told to stop once, it finishes what it speaks, and then it is gone from every register."""
    job_id, pid = await speaking(crew, caller)
    worker_id = crew.field(job_id, "worker_id")

    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)
    answer = await caller.answer(job_id)

    assert crew.processes[pid].wait(timeout=WAIT_S) == 0
    assert answer.worker_id == worker_id
    assert worker_id not in crew.documents()
    assert not crew.redis.exists(f"rq:worker:{worker_id}")


async def test_the_log_has_a_line_per_end_and_no_text(crew: Crew, caller: Caller) -> None:
    """Each end is one line with ids, codes, counts and times; what was said is in none."""
    job_id = await caller.ask(max_frames=5)
    await caller.answer(job_id)
    await until(lambda: job_id in crew.log.read_text())

    log = crew.log.read_text()
    ends = [line for line in map(json.loads, log.splitlines()) if line["event"] == "job_ended"]
    (end,) = [line for line in ends if line["job"] == job_id]
    assert TEXT not in log
    assert (end["finish_reason"], end["frames"], end["attempt"]) == ("length", 5, 1)
    assert 0 <= end["queue_wait_ms"] < 1000 * WAIT_S
    assert 0 < end["first_audio_ms"] <= end["total_ms"]


async def test_a_worker_without_its_artifact(crew: Crew, tmp_path: Path) -> None:
    """A directory with nothing in it: the process lives, explains itself and stops when told."""
    process = crew.hire(PSIONIC_CSM_ARTIFACTS=str(tmp_path), PSIONIC_CSM_NAMESPACE="lost")
    del crew.processes[process.pid]
    try:
        await until(lambda: _refusals(crew, "lost") == ["artifact_unavailable"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WAIT_S) == 0
    finally:
        process.kill()
        process.wait()


def _refusals(crew: Crew, namespace: str) -> list[str]:
    said = heartbeats(crew.redis, namespace).values()
    return [each["refusal"]["code"] for each in said if each["refusal"]]
