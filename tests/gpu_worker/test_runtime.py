"""The runtime's states: what loads and speaks, and what a fault looks like."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import gpu_worker.loading
from gpu_worker.engine import Engine
from gpu_worker.engine_thread import EngineFault
from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from gpu_worker.runtime import Runtime
from shared.clock import unix_ms
from shared.governance.artifacts import Artifact
from shared.settings import WorkerSettings
from tests.gpu_worker.runtimes import WAIT_S, Start, settled, start

__all__ = ["start"]


def speech(key: str, **changes: Any) -> Generation:
    base = Generation(
        key=key,
        text="Hello.",
        speaker=1,
        voice_profile_id="openagents/default_female_v1",
        context_policy="prompt_profile_only",
        max_frames=4,
        temperature=0.9,
        top_k=50,
        seed=1,
    )
    return replace(base, **changes)


def collect(runtime: Runtime, until: Callable[[list[Event]], bool]) -> list[Event]:
    events: list[Event] = []
    while not until(events):
        batch = runtime.poll(WAIT_S)
        assert batch, "nothing came"
        events += batch
    return events


def has_ended(events: list[Event]) -> bool:
    return any(isinstance(event, Ended) for event in events)


# Ready


def test_ready_facts(start: Start) -> None:
    """A ready runtime says what it serves on, what it loaded and in which determinism class."""
    facts = settled(start(PSIONIC_CSM_LANES="2")).facts

    assert (facts.state, facts.refusal, facts.cpu_fallback_reason) == ("ready", None, None)
    assert (facts.requested_backend, facts.backend) == ("cpu", "cpu")
    assert (facts.execution_engine, facts.residency) == ("torch_csm_cpu", "warm_cpu")
    assert (facts.accelerated_backend, facts.gpu_model) == ("unavailable_fail_closed", "none")
    assert facts.lanes == 2
    assert all((facts.tokenizer_loaded, facts.csm_config_loaded))
    assert all((facts.csm_model_loaded, facts.mimi_loaded))
    assert facts.load_latency_ms is not None
    assert facts.loaded_at_unix_ms is not None
    assert facts.memory_required_bytes is not None
    assert facts.memory_required_bytes > 1 << 20
    for part in ("cpu/", "float32", "lanes2", f"torch{torch.__version__}", "moshi0.2"):
        assert part in facts.determinism_class


def test_lanes_default_to_the_backend(start: Start) -> None:
    """Without a setting a CPU worker has four lanes."""
    assert settled(start()).facts.lanes == 4


def test_speaks(start: Start) -> None:
    """A submitted generation gives its frames and one end."""
    runtime = settled(start())
    runtime.submit(speech("a"))

    events = collect(runtime, has_ended)

    assert [event.index for event in events if isinstance(event, Frame)] == list(
        range(len(events) - 1)
    )
    end = events[-1]
    assert isinstance(end, Ended)
    assert (end.key, end.finish_reason) == ("a", "length")


def test_same_bits_from_two_runtimes(start: Start) -> None:
    """Two runtimes of one determinism class give the same bits for the same request."""
    runtimes = [settled(start()) for _ in range(2)]
    spoken = []
    for runtime in runtimes:
        runtime.submit(speech("a"))
        spoken.append(collect(runtime, has_ended))

    assert runtimes[0].facts.determinism_class == runtimes[1].facts.determinism_class
    assert spoken[0] == spoken[1]


def test_stop_is_answered(start: Start) -> None:
    """A stop frees the lane and is answered, also for a key that was never there."""
    runtime = settled(start())
    runtime.submit(speech("a", max_frames=1000))
    collect(runtime, bool)

    runtime.stop("a")
    runtime.stop("b")

    events = collect(runtime, lambda events: Released("b") in events)
    assert Released("a") in events
    assert not has_ended(events)


def test_unknown_voice_ends_the_row(start: Start) -> None:
    """A voice that the artifact doesn't govern is refused for that row."""
    runtime = settled(start())
    runtime.submit(speech("a", voice_profile_id="somebody/else"))

    (end,) = collect(runtime, has_ended)

    assert isinstance(end, Ended)
    assert end.failure_code == "voice_profile_unavailable"


def test_poll_returns_empty_in_time(start: Start) -> None:
    """With nothing to say poll gives an empty list and no error, ready or not."""
    assert settled(start()).poll(0.01) == []
    assert settled(start(PSIONIC_CSM_RUNTIME="off")).poll(0.01) == []


def test_loading_is_a_state_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it loads a runtime says so and claims nothing, and when it was loaded, afterwards."""
    go_on, load = threading.Event(), gpu_worker.loading.load

    def slow_load(*arguments: Any) -> Any:
        assert go_on.wait(WAIT_S)
        return load(*arguments)

    monkeypatch.setattr(gpu_worker.loading, "load", slow_load)
    runtime = start(PSIONIC_CSM_BACKEND="cpu")

    before = runtime.facts
    let_go_ms = unix_ms()
    go_on.set()
    settled(runtime)

    assert (before.state, before.residency, before.backend) == ("loading", "loading", "none")
    assert (before.loaded_at_unix_ms, before.csm_model_loaded, before.lanes) == (None, False, 0)
    assert runtime.facts.state == "ready"
    assert (runtime.facts.loaded_at_unix_ms or 0) >= let_go_ms, "when it was loaded, not before"


def test_usage_is_measured(start: Start) -> None:
    """On a CPU the memory used is the process's and there is no utilization to claim."""
    usage = settled(start()).usage()

    assert usage.memory_used_bytes is not None
    assert usage.memory_used_bytes > 50 << 20
    assert usage.utilization is None


# Faults


def test_a_fault_is_handed_over(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a step: what was emitted comes first, then every poll raises the fault."""
    runtime = settled(start())
    tick = Engine.tick

    def failing(engine: Engine, emit: Any) -> None:
        tick(engine, emit)
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(Engine, "tick", failing)
    runtime.submit(speech("a", voice_profile_id="nobody"))

    assert has_ended(runtime.poll(WAIT_S))
    for _ in range(2):
        with pytest.raises(EngineFault) as caught:
            runtime.poll(WAIT_S)
        assert isinstance(caught.value.__cause__, RuntimeError)
    assert runtime.facts.state == "unavailable"


def test_a_defect_while_loading_is_a_fault(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that no refusal covers ends the wait for loading and raises from poll."""

    def broken(*_: Any) -> Any:
        raise KeyError("defect")

    monkeypatch.setattr(gpu_worker.loading, "load", broken)
    runtime = settled(start())

    with pytest.raises(EngineFault):
        runtime.poll(WAIT_S)


def test_close_ends_the_thread(start: Start) -> None:
    """Closing ends the engine's thread, also in the middle of speech and when called twice."""
    runtime = settled(start())
    runtime.submit(speech("a", max_frames=1500))
    collect(runtime, bool)

    runtime.close(WAIT_S)
    runtime.close(WAIT_S)

    assert not any(thread.name == "engine" for thread in threading.enumerate())


def test_close_before_start(tiny_artifact: Artifact) -> None:
    """A runtime that never started can be closed."""
    assert Runtime(WorkerSettings.from_env({}), tiny_artifact.directory).close(0.1)


def test_the_worker_side_imports_no_torch() -> None:
    """Whoever drives the runtime pays for torch in the engine's thread, not at import."""
    code = (
        "import sys, gpu_worker.runtime, gpu_worker.generation, gpu_worker.telemetry\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_each_step_that_makes_a_frame_is_timed(tiny_artifact: Artifact) -> None:
    """One time per frame of the one lane that speaks, and none for prefill or idling."""
    steps: list[float] = []
    settings = WorkerSettings.from_env({"PSIONIC_CSM_TORCH_THREADS": "1"})
    runtime = Runtime(settings, tiny_artifact.directory, steps.append)
    runtime.start()
    try:
        settled(runtime).submit(speech("a"))
        frames = [event for event in collect(runtime, has_ended) if isinstance(event, Frame)]
    finally:
        runtime.close(WAIT_S)

    assert len(steps) == len(frames) > 0
    assert all(0 < each < WAIT_S for each in steps)
