"""The measurements of the engine itself. Each function takes a rig and gives a record.

Everything was run once before it is timed; who times it says how often.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Final

import torch

from benchmarks.records import FirstAudio, Join, Prefill, Spread
from benchmarks.rig import SENTENCE, Opened, Rig, frames_of, open_codec
from benchmarks.timing import repeated, take_turns, timed
from gpu_worker.generation import Event
from gpu_worker.prompt import Frames, join
from shared.wav import CODEBOOKS

LONG_PROMPT: Final = 500
"""Positions of the newcomer's prompt in ``joining``."""


def frame(rig: Rig) -> Callable[[], None]:
    """One frame of all lanes, from the last hidden state to PCM on the host and the next one."""

    def speak() -> None:
        rig.speak_on()
        rig.opened.wait()

    return speak


def codec_frame(opened: Opened, lanes: int) -> Callable[[], None]:
    """One frame of all lanes through Mimi alone, on streams of its own."""
    codec = open_codec(opened, lanes)
    codes = torch.zeros((lanes, CODEBOOKS), dtype=torch.int64, device=opened.device)
    active = torch.ones(lanes, dtype=torch.bool, device=opened.device)

    def decode() -> None:
        codec.step(codes, active, check=False)
        opened.wait()

    return decode


def first_audio(rig: Rig, rounds: int) -> FirstAudio:
    """Submit to first samples, with and without the voice's prompt, one lane of an idle engine."""

    def once(*, prompted: bool) -> Callable[[], float]:
        def speak() -> float:
            rig.submit(rig.generation(prompted=prompted))
            took = timed(lambda: _until_first_frame(rig))
            rig.clear()
            return took

        return speak

    plain, prompted = once(prompted=False), once(prompted=True)
    plain(), prompted()
    samples = take_turns({"plain": lambda: [plain()], "prompted": lambda: [prompted()]}, rounds)
    positions = len(rig.opened.voice_frames())
    return FirstAudio(
        rig.lanes, Spread.of(samples["plain"]), Spread.of(samples["prompted"]), positions
    )


def _until_first_frame(rig: Rig) -> None:
    while not frames_of(rig.tick()):
        pass


def prefill(rig: Rig, rounds: int) -> tuple[Prefill, ...]:
    """A short text alone, after its voice's prompt, and after that prompt's cached keys."""
    step, text = rig.step, rig.opened.text_frames(SENTENCE)
    voice = rig.opened.voice_frames()
    prefix = step.make_prefix(0, voice.tokens, voice.mask)
    whole = join([voice, text])

    def cached() -> None:
        step.copy_prefix(0, prefix)
        run_prompt(rig, text, len(voice))

    works: dict[str, tuple[int, Callable[[], None]]] = {
        "text alone": (len(text), lambda: run_prompt(rig, text)),
        "text and voice, computed": (len(whole), lambda: run_prompt(rig, whole)),
        "text and voice, voice cached": (len(whole), cached),
    }
    for _, work in works.values():
        work()
    samples = take_turns({name: repeated(work, 1) for name, (_, work) in works.items()}, rounds)
    step.release(0)
    return tuple(
        Prefill(name, positions, Spread.of(samples[name])) for name, (positions, _) in works.items()
    )


def run_prompt(rig: Rig, frames: Frames, start: int = 0) -> None:
    """Put frames through lane 0, chunk by chunk, and wait for the last."""
    for first in range(0, len(frames), rig.chunk):
        rows = slice(first, first + rig.chunk)
        rig.step.prefill(0, frames.tokens[rows], frames.mask[rows], start + first)
    rig.opened.wait()


def chunk_alone(rig: Rig, times: int) -> Spread:
    """One chunk of prefill behind ``LONG_PROMPT`` positions, in an idle engine."""
    frames = rig.opened.text_frames(rig.opened.text(rig.chunk))
    start = (LONG_PROMPT // rig.chunk) * rig.chunk
    chunk = Frames(frames.tokens[: rig.chunk], frames.mask[: rig.chunk])
    run_prompt(rig, chunk, start)
    spread = Spread.of([timed(lambda: run_prompt(rig, chunk, start)) for _ in range(times)])
    rig.step.release(0)
    return spread


def joining(rig: Rig, times: int) -> Join:
    """All lanes but one speak while the last takes in a prompt of ``LONG_PROMPT`` positions."""
    alone = chunk_alone(rig, times)
    newcomer = rig.generation(rig.opened.text(LONG_PROMPT))
    moments = Moments()
    with rig.filled(rig.lanes - 1):
        while len(moments.at) <= times:
            rig.engine.tick(moments)
        rig.submit(newcomer)
        while newcomer.key not in moments.spoke:
            rig.engine.tick(moments)
    gaps = moments.gaps_s
    return Join(
        lanes=rig.lanes,
        positions=LONG_PROMPT,
        joining_frames=len(gaps) - times,
        chunks=math.ceil(LONG_PROMPT / rig.chunk),
        undisturbed_s=Spread.of(gaps[:times]),
        chunk_s=alone,
        gaps_s=Spread.of(gaps[times:]),
        longest_s=max(gaps[times:]),
    )


class Moments:
    """Notes when frames were emitted, and of whom."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.spoke: set[str] = set()

    def __call__(self, events: list[Event]) -> None:
        if found := frames_of(events):
            self.at.append(time.perf_counter())
            self.spoke.update(frame.key for frame in found)

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one frame and the next."""
        return [later - earlier for earlier, later in itertools.pairwise(self.at)]
