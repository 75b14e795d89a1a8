"""The engine without compute: what it makes, how it ends, and a whole stack over it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.paced import ENGINE, PacedRuntime, codes_of, pcm_of
from cli.bench_stack import PacedPlan, paced_stack
from gpu_worker.engine_thread import EngineFault
from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from shared.wav import CODEBOOKS, FRAME_BYTES
from tests.e2e.stacks import demo_cache, noise

__all__ = ["demo_cache"]

WAIT_S = 20.0


def generation(text: str = "Hello.", **changes: object) -> Generation:
    plain = Generation("a", text, 0, "voice", "none", 6, 0.9, 50, seed=7)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture
def runtime() -> Iterator[PacedRuntime]:
    runtime = PacedRuntime(lanes=4, step_ms=1)
    runtime.start()
    yield runtime
    runtime.close(WAIT_S)


def events_until(runtime: PacedRuntime, done: Callable[[Event], bool]) -> list[Event]:
    heard: list[Event] = []
    deadline = time.monotonic() + WAIT_S
    while not (heard and any(done(event) for event in heard)):
        assert time.monotonic() < deadline, heard
        heard += runtime.poll(0.1)
    return heard


def spoken(runtime: PacedRuntime, wanted: Generation) -> tuple[list[Frame], Ended]:
    runtime.submit(wanted)
    heard = events_until(runtime, lambda event: isinstance(event, Ended))
    (end,) = (event for event in heard if isinstance(event, Ended))
    return [event for event in heard if isinstance(event, Frame)], end


def test_frames_follow_from_seed_and_index(runtime: PacedRuntime) -> None:
    """A frame is a frame's size, its codes are Mimi's, and no two of them are alike."""
    frames, end = spoken(runtime, generation())

    assert [frame.index for frame in frames] == list(range(6))
    assert (end.finish_reason, end.frame_count) == ("length", 6)
    assert {len(frame.pcm) for frame in frames} == {FRAME_BYTES}
    codes = [int.from_bytes(frames[0].codes[i : i + 2], "little") for i in range(0, 64, 2)]
    assert len(codes) == CODEBOOKS
    assert max(codes) < 2048
    assert len({codes_of(seed, index) for seed in range(20) for index in range(20)}) == 400
    assert len({pcm_of(seed, index) for seed in range(20) for index in range(20)}) == 400


def test_a_replay_goes_on_with_the_same_bits(runtime: PacedRuntime) -> None:
    """Frames that another worker delivered are not made again, and the next are what it'd make."""
    whole, _ = spoken(runtime, generation())

    replay = tuple(frame.codes for frame in whole[:4])
    rest, end = spoken(runtime, generation(replay=replay))

    assert rest == whole[4:]
    assert end.frame_count == 6


def test_a_replay_of_other_frames_is_refused(runtime: PacedRuntime) -> None:
    """Codes that this seed doesn't give end the row: two answers may not be mixed."""
    frames, end = spoken(runtime, generation(replay=(codes_of(8, 0),)))

    assert frames == []
    assert (end.finish_reason, end.failure_code) == ("error", "csm_synthesis_failed")


@pytest.mark.parametrize(
    ("text", "made", "reason", "code"),
    [
        ("[eos 3] Hello.", 3, "stop", None),
        ("[eos 0] Hello.", 0, "error", "no_audio_generated"),
        ("Hello. [nonfinite 2]", 2, "error", "csm_synthesis_failed"),
    ],
)
def test_a_text_can_ask_for_an_end(
    runtime: PacedRuntime, text: str, made: int, reason: str, code: str | None
) -> None:
    """A mark in the text ends its row there, as the model or the check of a row would."""
    frames, end = spoken(runtime, generation(text))

    assert (len(frames), end.finish_reason, end.failure_code) == (made, reason, code)


def test_a_text_can_make_a_step_raise(runtime: PacedRuntime) -> None:
    """The engine dies as the real one does: what it made is handed over, then poll raises."""
    runtime.submit(generation("[raise 2]"))

    heard = [runtime.poll(WAIT_S) for _ in range(2)]
    assert [len(events) for events in heard] == [1, 1]
    with pytest.raises(EngineFault, match="StepFailed"):
        runtime.poll(WAIT_S)


def test_a_text_can_make_a_step_hang() -> None:
    """It comes round no more, raises nothing, and doesn't end when it is told to."""
    runtime = PacedRuntime(lanes=4, step_ms=1)
    runtime.start()
    runtime.submit(generation("[hang 2]"))

    assert [len(runtime.poll(WAIT_S)) for _ in range(2)] == [1, 1]
    assert runtime.poll(0.1) == []
    rounds = runtime.rounds
    assert runtime.poll(0.1) == []
    assert runtime.rounds == rounds
    assert not runtime.close(0.1)


def test_a_stop_is_answered(runtime: PacedRuntime) -> None:
    """A stopped row makes nothing more and its lane is free; so says Released."""
    runtime.submit(generation(max_frames=100_000))
    events_until(runtime, lambda event: isinstance(event, Frame))

    runtime.stop("a")
    heard = events_until(runtime, lambda event: isinstance(event, Released))

    assert isinstance(heard[-1], Released)
    assert runtime.poll(0.05) == []


def test_lanes_step_together_at_the_given_pace() -> None:
    """Two rows take the time of one, and a step takes what was said."""
    runtime = PacedRuntime(lanes=2, step_ms=20)
    runtime.start()
    began = time.monotonic()
    for key in "ab":
        runtime.submit(generation(key=key, max_frames=10))
    ended: set[str] = set()
    while ended != {"a", "b"}:
        ended |= {event.key for event in runtime.poll(WAIT_S) if isinstance(event, Ended)}
    runtime.close(WAIT_S)

    assert time.monotonic() - began >= 9 * 0.020


def test_the_worker_loads_no_torch() -> None:
    """The process starts in the time of its imports, none of which is torch."""
    code = "import benchmarks.paced_worker, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.e2e
@pytest.mark.redis
def test_a_whole_stack_over_it(demo_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways, workers and Redis run; what is served is named; a poisoned step is survived."""
    for name, value in noise(demo_cache).items():
        monkeypatch.setenv(name, value)
    threads = threading.active_count()
    with paced_stack(PacedPlan(workers=2, lanes=2, step_ms=5, gateways=2)) as stack:
        answers = [
            httpx.post(
                f"{url}/psionic/csm/speech",
                json={"input": text, "seed": 7, "max_audio_length_ms": 800},
                timeout=WAIT_S,
                trust_env=False,
            )
            for url, text in zip(stack.urls, ("Hello.", "[raise 2] Hello."), strict=True)
        ]
        restarted = time.monotonic() + WAIT_S
        while not any(stack.supervisor.restarts.values()):
            assert time.monotonic() < restarted
            threading.Event().wait(0.05)

    assert [answer.status_code for answer in answers] == [200, 502]
    assert answers[0].headers["x-psionic-execution-engine"] == ENGINE
    assert answers[0].content[44:] == b"".join(pcm_of(7, index) for index in range(10))
    assert answers[1].json()["error"]["code"] == "worker_lost"
    assert threading.active_count() == threads
