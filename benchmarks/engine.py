"""One run: everything that ``psionic-csm bench engine`` says, measured on one screen.

Opens the model once, warms every variant, lets the compared ones take turns, and measures the rest
one after another. ``say`` is told what is going on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from benchmarks import arithmetic, machine, oracle, speaking
from benchmarks.bounds import judge
from benchmarks.load_probe import loading
from benchmarks.material import material
from benchmarks.overhead import overhead
from benchmarks.records import GIVEN, Lanes, Oracle, Report, Spread, Subject
from benchmarks.rig import SENTENCE, Opened, Rig, open_model
from benchmarks.timing import Turn, take_turns, warmed
from gpu_worker.model.checkpoint import load_state
from gpu_worker.model.layouts import torchtune_shapes, widen
from gpu_worker.model.products import multiplies_int8
from gpu_worker.model.quantize import LITERAL
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, load_artifact

FRAMES_PER_TURN: Final = 2
PROFILED_FRAMES: Final = 7
ORACLE_BATCHES: Final = (1, 4)
LOADED_LANES: Final = 4
"""Lanes of the worker whose loading is measured: what a CPU worker has by itself."""
NO_ORACLE: Final = "transformers is not installed (it comes with the dev extra): not compared"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. ``frames`` is how many of each variant; ``cache`` holds the weights.

    ``artifact`` is a directory to measure in the place of weights of ``size``.
    """

    size: str
    artifact: Path | None
    lanes: tuple[int, ...]
    frames: int
    threads: int
    chunk: int
    dtype: str
    cache: Path

    @property
    def rounds(self) -> int:
        return -(-self.frames // FRAMES_PER_TURN)

    @property
    def repeats(self) -> int:
        """Of what is measured by itself."""
        return max(2, self.frames // 6)


def run(plan: Plan, say: Say) -> Report:
    """Measure it all. Raises SpeechError, ProbeFailed or OSError when the material fails."""
    began, load_before = time.monotonic(), machine.load_average()
    torch.set_num_threads(plan.threads)
    artifact, origin = _chosen(plan, say)
    say("loading, in a process of its own")
    loaded = loading(artifact, plan.dtype, LOADED_LANES, plan.threads)
    with torch.inference_mode():
        say("opening the model")
        opened = open_model(artifact, dtype=getattr(torch, plan.dtype))
        rigs = {lanes: Rig(opened, lanes, plan.chunk) for lanes in plan.lanes}
        most, some = rigs[max(plan.lanes)], rigs[_near(LOADED_LANES, plan.lanes)]
        say("first audio, prefill, a join")
        audio = speaking.first_audio(some, plan.repeats)
        prefills = speaking.prefill(some, plan.repeats)
        company = most if most.lanes > 1 else Rig(opened, 2, plan.chunk)
        join = speaking.joining(company, plan.repeats)
        say("frames, in turns")
        samples = _frames(plan, opened, rigs, say)
        say("profile")
        with most.filled(most.lanes):
            spent = overhead(speaking.frame(most), most.lanes, PROFILED_FRAMES)
    report = Report(
        machine=machine.describe(load_before),
        subject=_subject(plan, artifact, opened, origin),
        read_bytes_per_s=Spread.of([machine.STREAM_BYTES / s for s in samples["read"]]),
        lanes=tuple(
            Lanes(n, Spread.of(samples[f"lanes {n}"]), Spread.of(samples[f"codec {n}"]))
            for n in plan.lanes
        ),
        oracle=tuple(
            Oracle(batch, Spread.of(samples[f"oracle {batch}"]))
            for batch in ORACLE_BATCHES
            if f"oracle {batch}" in samples
        ),
        prefill=prefills,
        first_audio=audio,
        join=join,
        overhead=spent,
        loading=loaded,
        peak_rss_bytes=machine.peak_rss_bytes(),
        seconds=time.monotonic() - began,
        bounds=(),
        notes=() if oracle.is_installed() else (NO_ORACLE,),
    )
    return replace(report, bounds=judge(report))


def _chosen(plan: Plan, say: Say) -> tuple[Artifact, str]:
    """The artifact, and where it comes from. SpeechError for one that has no prompt to measure."""
    if plan.artifact is None:
        say(f"weights of size {plan.size}")
        artifact, is_new = material(plan.size, plan.cache)
        return artifact, f"{'built now' if is_new else 'built before'} in {artifact.directory}"
    artifact = load_artifact(plan.artifact)
    if not artifact.voices.default.has_prompt:
        raise SpeechError("artifact_unavailable", "the default voice has no prompt to measure with")
    return artifact, str(artifact.directory)


def _frames(plan: Plan, opened: Opened, rigs: dict[int, Rig], say: Say) -> dict[str, list[float]]:
    """The compared variants, taking turns: seconds of each frame, and of each read of memory."""
    variants: dict[str, Turn] = {}
    for lanes, rig in rigs.items():
        codec = speaking.codec_frame(opened, lanes)
        variants[f"lanes {lanes}"] = warmed(speaking.frame(rig), FRAMES_PER_TURN)
        variants[f"codec {lanes}"] = warmed(codec, FRAMES_PER_TURN)
    variants |= _oracle_turns(opened, say)
    variants["read"] = warmed(machine.streaming_read(opened.device), 1)
    for rig in rigs.values():
        rig.fill(rig.lanes)
    take_turns(variants, 1)  # warm-up
    samples = take_turns(variants, plan.rounds)
    for rig in rigs.values():
        rig.clear()
    return samples


def _oracle_turns(opened: Opened, say: Say) -> dict[str, Turn]:
    if not oracle.is_installed():
        say(NO_ORACLE)
        return {}
    config, dtype = opened.checkpoint.config, opened.model.dtype
    state = load_state(opened.artifact, config, dtype=dtype)
    widen(state)  # what is quantized; transformers runs the same numbers in ``dtype``
    built = oracle.build_oracle(config, state, dtype)
    ids = opened.checkpoint.tokenizer.encode(0, SENTENCE)

    def turn(batch: int) -> Turn:
        return lambda: oracle.frames(built, ids, batch, FRAMES_PER_TURN)

    return {f"oracle {batch}": turn(batch) for batch in ORACLE_BATCHES}


def _subject(plan: Plan, artifact: Artifact, opened: Opened, origin: str) -> Subject:
    config = opened.checkpoint.config
    shapes = torchtune_shapes(config)
    elements = arithmetic.weight_elements_per_frame(shapes, config.num_codebooks)
    is_int8 = artifact.manifest.quantization == LITERAL and multiplies_int8(opened.device)
    return Subject(
        size=plan.size if plan.artifact is None else GIVEN,
        artifact_id=artifact.artifact_id,
        origin=origin,
        dtype=f"{plan.dtype}, matrices int8" if is_int8 else plan.dtype,
        chunk=plan.chunk,
        parameters=arithmetic.elements(shapes),
        weight_bytes_per_frame=elements * (1 if is_int8 else opened.model.dtype.itemsize),
    )


def _near(wanted: int, lanes: tuple[int, ...]) -> int:
    return min(lanes, key=lambda each: abs(each - wanted))
