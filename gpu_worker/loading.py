"""From an artifact's directory to a warm engine on the device that was asked for."""

from __future__ import annotations

import importlib.metadata
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import torch

from gpu_worker.backend import CPU, Backend, open_device
from gpu_worker.capture import CudaGraphs
from gpu_worker.codec import StreamingMimi
from gpu_worker.codec_layout import mimi_bytes
from gpu_worker.engine import Engine
from gpu_worker.generation import Ended, Event, Frame, Generation
from gpu_worker.model.checkpoint import LOAD_FAILED, UNFIT, Checkpoint, load_checkpoint
from gpu_worker.model.csm import CsmModel
from gpu_worker.prompt import Prompt, build_prompt, text_frames
from gpu_worker.sampling import FEW
from gpu_worker.step import FrameStep
from gpu_worker.telemetry import Probe, gpu_model, probe_for
from gpu_worker.voices import context_of
from shared.clock import monotonic_ms
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, load_artifact
from shared.messages import CONTEXT_NONE, CONTEXT_PROMPT
from shared.settings import WorkerSettings

CPU_LANES: Final = 4
CUDA_LANES: Final = 32
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FALLBACK_FAILED: Final = "csm_cpu_fallback_load_failed"
_WARM_UP_FRAMES: Final = 2
_TIMED_FRAMES: Final = 3
"""The first of them comes after a prefill and a replay."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A warm engine and what it runs on. Use the engine inside ``mode`` and on one thread."""

    engine: Engine
    backend: Backend
    cpu_fallback_reason: str | None
    gpu_model: str
    lanes: int
    determinism_class: str
    memory_required_bytes: int
    warm_step_ms: float | None
    probe: Probe

    def mode(self) -> AbstractContextManager[object]:
        return torch.inference_mode()


def load(settings: WorkerSettings, artifact_dir: Path, backend: Backend) -> Loaded:
    """Read, verify, place and warm everything. Raises SpeechError with a load refusal's code."""
    torch.set_num_threads(settings.torch_threads)
    artifact = load_artifact(artifact_dir)
    reason: str | None = None
    try:
        return _load_on(backend, settings, artifact, None)
    except SpeechError as error:
        if error.code != "accelerator_unavailable" or not settings.cpu_fallback:
            raise
        reason = error.message
    except (MemoryError, *UNFIT) as error:
        if backend == CPU or not settings.cpu_fallback:
            raise SpeechError(LOAD_FAILED, _describe(backend, error)) from error
        reason = _describe(backend, error)
    return _fall_back(settings, artifact, reason)


def _fall_back(settings: WorkerSettings, artifact: Artifact, reason: str) -> Loaded:
    try:
        return _load_on(CPU, settings, artifact, reason)
    except SpeechError as error:
        if error.code != LOAD_FAILED:
            raise
        raise SpeechError(FALLBACK_FAILED, error.message) from error
    except (MemoryError, *UNFIT) as error:
        raise SpeechError(FALLBACK_FAILED, _describe(CPU, error)) from error


def _describe(backend: Backend, error: Exception) -> str:
    """For an operator: the first line says what; no caller's text is in play while loading."""
    first, *_ = str(error).splitlines() or [""]
    return f"loading on {backend.label} failed: {type(error).__name__}: {first[:200]}"


def _load_on(
    backend: Backend, settings: WorkerSettings, artifact: Artifact, reason: str | None
) -> Loaded:
    device = open_device(backend)
    fix_arithmetic(backend)
    dtype = DTYPES[settings.dtype or ("bfloat16" if backend.label == "cuda" else "float32")]
    lanes = settings.lanes or (CUDA_LANES if backend.label == "cuda" else CPU_LANES)
    with torch.inference_mode():
        checkpoint = load_checkpoint(
            artifact, device=device, dtype=dtype, hub_roots=settings.hub_roots
        )
        model = CsmModel(checkpoint.config, dtype, device, allocate=False)
        model.fill(checkpoint.state)
        codec = StreamingMimi(checkpoint.mimi, lanes)
        step = FrameStep(model, codec, lanes, settings.prefill_chunk)
        make_repeatable(step)
        engine = assemble(step, artifact, checkpoint)
        warm_step_ms = warm_up(engine, artifact)
    return Loaded(
        engine=engine,
        backend=backend,
        cpu_fallback_reason=reason,
        gpu_model=gpu_model(backend),
        lanes=lanes,
        determinism_class=determinism_class(backend, dtype, lanes, settings),
        memory_required_bytes=(
            model.nbytes + step.nbytes + mimi_bytes(checkpoint.mimi) + codec.nbytes
        ),
        warm_step_ms=warm_step_ms,
        probe=probe_for(backend),
    )


def make_repeatable(step: FrameStep) -> None:
    """Have a frame's parts run without Python from now on: as graphs on CUDA, on a CPU as scripts.

    Raises RuntimeError where a part can't be recorded.
    """
    device = step.hidden.device
    if device.type == "cuda":
        step.record(CudaGraphs(device))
    elif device.type == "cpu":
        step.script()


def assemble(step: FrameStep, artifact: Artifact, checkpoint: Checkpoint) -> Engine:
    """The engine of one artifact, its voices' contexts computed once."""
    prefixes = {
        name: step.make_prefix(0, voice.segment.tokens, voice.segment.mask)
        for name, voice in checkpoint.voices.items()
    }

    def build(generation: Generation) -> Prompt:
        artifact.voices.find(generation.voice_profile_id)
        ids = checkpoint.tokenizer.encode(generation.speaker, generation.text)
        context = context_of(
            checkpoint.voices, generation.voice_profile_id, generation.context_policy
        )
        return build_prompt(
            context,
            text_frames(ids),
            max_frames=generation.max_frames,
            max_seq_len=checkpoint.config.max_seq_len,
        )

    return Engine(step, build, prefixes)


def warm_up(engine: Engine, artifact: Artifact) -> float | None:
    """Speak a little through every path, so that the first caller meets nothing for the first time.

    Everything runs twice: a script is written the first time and made ready the second. Longer
    spans of the backbone's part were made ready by ``FrameStep.script``.

    Returns the milliseconds of a step once everything is warm, None if there was none. Raises
    SpeechError("csm_runtime_load_failed") when that does not give finite speech. The model may end
    at once: random weights sometimes do.
    """
    voice = artifact.voices.default
    sampled = Generation(
        key="warm-up",
        text="Ready.",
        speaker=voice.speaker,
        voice_profile_id=voice.profile_id,
        context_policy=CONTEXT_PROMPT if voice.has_prompt else CONTEXT_NONE,
        max_frames=_WARM_UP_FRAMES,
        temperature=0.9,
        top_k=FEW,
        seed=0,
    )
    for top_k in (1, FEW + 1):
        _speak(engine, replace(sampled, top_k=top_k))
    frames, _ = _speak(engine, sampled)
    replay = tuple(frame.codes for frame in frames)
    longer = replace(sampled, replay=replay, max_frames=len(replay) + _TIMED_FRAMES)
    _, steps_ms = _speak(engine, longer)
    return median(steps_ms) if steps_ms else None


def _speak(engine: Engine, generation: Generation) -> tuple[list[Frame], list[float]]:
    """The frames, and how long each step took that made one."""
    events: list[Event] = []
    steps_ms: list[float] = []
    engine.submit(generation)
    while not engine.is_idle:
        before, began_ms = len(events), monotonic_ms()
        engine.tick(events.extend)
        if any(isinstance(event, Frame) for event in events[before:]):
            steps_ms.append(monotonic_ms() - began_ms)
    for event in events:
        if isinstance(event, Ended) and event.failure_code not in (None, "no_audio_generated"):
            raise SpeechError(LOAD_FAILED, f"the warm-up failed: {event.failure_code}")
    return [event for event in events if isinstance(event, Frame)], steps_ms


def determinism_class(
    backend: Backend, dtype: torch.dtype, lanes: int, settings: WorkerSettings
) -> str:
    """What has to be equal for two workers to give the same bits for the same request."""
    if backend == CPU:
        machine = f"{torch.backends.cpu.get_cpu_capability()}-threads{settings.torch_threads}"
    else:
        machine = gpu_model(backend).replace(" ", "-")
    return "/".join(
        (
            backend.label,
            machine,
            str(dtype).removeprefix("torch."),
            f"lanes{lanes}",
            f"chunk{settings.prefill_chunk}",
            f"torch{torch.__version__}",
            f"moshi{importlib.metadata.version('moshi')}",
        )
    )


def fix_arithmetic(backend: Backend) -> None:
    """One way to compute everything: no autotuning, no TF32, no reduced-precision sums.

    On CUDA only those attention kernels that take a mask and plan nothing at their first call; a
    CPU has its own, which the same switches would turn off.
    """
    on_cuda = backend.label == "cuda"
    torch.backends.cuda.enable_cudnn_sdp(not on_cuda)
    torch.backends.cuda.enable_flash_sdp(not on_cuda)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
