"""What a runtime doesn't serve: each refusal by its code, and the fallback that says so."""

from __future__ import annotations

import errno
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpu_worker.loading
import gpu_worker.runtime
from gpu_worker.model.checkpoint import load_checkpoint
from gpu_worker.runtime import Runtime
from shared.errors import PENDING_PHASES
from tests.gpu_worker.rebound import rebind
from tests.gpu_worker.runtimes import Start, copied, settled, start

__all__ = ["copied", "start"]


def refused(runtime: Runtime, code: str) -> str:
    facts = settled(runtime).facts
    assert facts.refusal is not None
    assert facts.refusal.code == code
    assert facts.refusal.pending_phases == PENDING_PHASES[code]
    assert (facts.state, facts.residency, facts.backend) == ("unavailable", "unavailable", "none")
    assert not facts.csm_model_loaded
    assert facts.lanes == 0
    return facts.refusal.reason


def test_disabled(start: Start) -> None:
    """Switched off, it says so and loads nothing."""
    refused(start(PSIONIC_CSM_RUNTIME="disabled"), "runtime_disabled")


@pytest.mark.parametrize("backend", ["tpu", "cuda:x", "cuda:-1", "cpu:0", "cuda:0:1", "gpu"])
def test_unsupported_backend(start: Start, backend: str) -> None:
    """A backend that isn't one is refused, never taken for the CPU."""
    runtime = start(PSIONIC_CSM_BACKEND=backend)

    refused(runtime, "unsupported_backend")
    assert runtime.facts.requested_backend == backend
    assert runtime.facts.execution_engine == "unsupported_backend"


@pytest.mark.parametrize(("backend", "label"), [("cuda:97", "cuda"), (" METAL:3 ", "mps")])
def test_accelerator_that_is_not_there(start: Start, backend: str, label: str) -> None:
    """Without the switch an absent accelerator is a refusal, though a CPU is at hand."""
    runtime = start(PSIONIC_CSM_BACKEND=backend)

    refused(runtime, "accelerator_unavailable")
    assert runtime.facts.requested_backend == label


def test_cpu_fallback_says_so(start: Start) -> None:
    """With the switch the CPU serves, and backend, engine and reason say it."""
    facts = settled(
        start(
            PSIONIC_CSM_BACKEND="cuda:97",
            PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE="true",
        )
    ).facts

    assert facts.state == "ready"
    assert (facts.requested_backend, facts.backend) == ("cuda", "cpu")
    assert facts.execution_engine == "torch_csm_cpu"
    assert facts.accelerated_backend == "unavailable_fail_closed"
    assert facts.cpu_fallback_reason is not None
    assert "cuda:97" in facts.cpu_fallback_reason


def test_no_fallback_was_needed(start: Start) -> None:
    """The switch alone changes nothing for a CPU that was asked for."""
    runtime = start(PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE="1")

    assert settled(runtime).facts.cpu_fallback_reason is None


MISSING = [
    ("manifest.json", "artifact_unavailable"),
    ("voices.json", "voice_profile_descriptor_unavailable"),
    ("config.json", "csm_config_unavailable"),
    ("tokenizer.json", "llama_tokenizer_unavailable"),
    ("model.safetensors", "csm_model_unavailable"),
    ("mimi.safetensors", "mimi_model_unavailable"),
]


@pytest.mark.parametrize(("name", "code"), MISSING)
def test_missing_file(
    start: Start, copied: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there is refused with the code of its part."""
    monkeypatch.setenv("HOME", str(copied))
    monkeypatch.delenv("HF_HOME", raising=False)
    (copied / name).unlink()

    refused(start(copied), code)


DAMAGED = [
    ("config.json", "csm_config_invalid"),
    ("tokenizer.json", "llama_tokenizer_unavailable"),
    ("model.safetensors", "csm_runtime_load_failed"),
    ("mimi.safetensors", "csm_runtime_load_failed"),
]


@pytest.mark.parametrize(("name", "code"), DAMAGED)
@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_damaged_file(start: Start, copied: Path, name: str, code: str, damage: str) -> None:
    """A file cut short, or with one bit changed, is not served; the process lives and explains."""
    data = bytearray((copied / name).read_bytes())
    if damage == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)

    assert name in refused(start(copied), code)


def test_damaged_file_with_fallback(start: Start, copied: Path) -> None:
    """When the CPU that stands in can't load either, that is a code of its own."""
    path = copied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    refused(
        start(
            copied,
            PSIONIC_CSM_BACKEND="cuda:97",
            PSIONIC_CSM_CPU_FALLBACK_ON_ACCELERATOR_FAILURE="on",
        ),
        "csm_cpu_fallback_load_failed",
    )


def test_warm_up_that_fails(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that give no finite speech are found before anybody is served."""

    def poisoned(*arguments: Any, **options: Any) -> Any:
        checkpoint = load_checkpoint(*arguments, **options)
        checkpoint.state["backbone.norm.scale"].fill_(float("nan"))
        return checkpoint

    monkeypatch.setattr(gpu_worker.loading, "load_checkpoint", poisoned)

    assert "warm-up" in refused(start(), "csm_runtime_load_failed")


def test_load_that_runs_out_of_memory(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of torch while loading is a refusal that names its kind, not a dead process."""

    def exhausted(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(gpu_worker.loading, "CsmModel", exhausted)

    assert "MemoryError" in refused(start(), "csm_runtime_load_failed")


@pytest.mark.parametrize("error", [TypeError("no float64 there"), ZeroDivisionError("by zero")])
def test_what_a_device_or_a_file_makes_impossible(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever kind of error torch has for it, the worker lives and says so: to start again would
    end the same way.
    """

    def impossible(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(gpu_worker.loading, "FrameStep", impossible)

    assert type(error).__name__ in refused(start(), "csm_runtime_load_failed")


def test_codec_of_another_kind(start: Start, copied: Path) -> None:
    """A Mimi that moshi can build and the step can't stream is refused, with right digests, too."""
    dimensions = json.loads((copied / "mimi.json").read_text())
    dimensions["transformer"]["context"] = 0
    rebind(copied, {"mimi.json": json.dumps(dimensions).encode()})

    assert "not of the published kind" in refused(start(copied), "csm_runtime_load_failed")


def test_libraries_that_can_t_be_loaded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may have too little memory for torch, or a broken installation: refused with
    what the system said, and no crash that a supervisor would repeat for ever.
    """
    monkeypatch.setitem(sys.modules, "gpu_worker.loading", None)

    reason = refused(start(), "csm_runtime_load_failed")

    assert reason.startswith("loading failed: ModuleNotFoundError: import of gpu_worker.loading")


@pytest.mark.parametrize(
    "error", [OSError("libcudart.so.12: cannot open shared object file"), ValueError("not found")]
)
def test_libraries_that_lack_one_of_their_own(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What torch raises where a part of CUDA is missing is no ImportError, and no crash either."""

    def broken() -> None:
        raise error

    monkeypatch.setattr(gpu_worker.runtime, "import_numpy", broken)

    assert str(error) in refused(start(), "csm_runtime_load_failed")


def test_too_little_memory_for_the_weights(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is being read is not said to be missing: there is no memory to put it in."""

    def none(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", none)

    assert "MemoryError" in refused(start(), "csm_runtime_load_failed")


NUMPY = """
import os, sys
from gpu_worker.runtime import import_numpy
import_numpy()
assert "numpy" in sys.modules and "OPENBLAS_NUM_THREADS" not in os.environ
sys.exit(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_library_starts_threads_that_it_could_not_have() -> None:
    """numpy's OpenBLAS would tell the process to stop where there is no memory for its threads."""
    environment = {name: each for name, each in os.environ.items() if "_NUM_THREADS" not in name}

    done = subprocess.run([sys.executable, "-c", NUMPY], env=environment, check=False)

    assert done.returncode == 1
