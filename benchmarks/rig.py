"""A loaded model and lanes on it, put together from the engine's public parts as a worker does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch

from gpu_worker.backend import open_device, parse_backend
from gpu_worker.codec import StreamingMimi
from gpu_worker.generation import Event, Frame, Generation
from gpu_worker.loading import assemble, fix_arithmetic, make_repeatable
from gpu_worker.model.checkpoint import Checkpoint, load_checkpoint, load_mimi
from gpu_worker.model.csm import CsmModel
from gpu_worker.prompt import Frames, text_frames
from gpu_worker.step import FrameStep
from shared.governance.artifacts import Artifact
from shared.messages import CONTEXT_NONE, CONTEXT_PROMPT

SENTENCE: Final = "The answer is ready, and it is a short one."
TEMPERATURE: Final = 0.9
TOP_K: Final = 50
MAX_FRAMES: Final = 1400
"""Frames that a lane may speak: more than any measurement takes."""
NEVER: Final = -1
"""No frame is the end frame: a trained artifact would stop in the middle of a measurement."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An artifact's weights on a device. ``checkpoint.state`` has been given to the model."""

    artifact: Artifact
    checkpoint: Checkpoint
    model: CsmModel
    device: torch.device

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def text(self, positions: int) -> str:
        """A text that takes at least ``positions`` positions, and few more."""
        words = f"{SENTENCE} " * (1 + positions // 8)
        length = len(SENTENCE)
        while len(self.text_frames(words[:length])) < positions:
            length += 1
        return words[:length]

    def text_frames(self, text: str) -> Frames:
        return text_frames(self.checkpoint.tokenizer.encode(0, text))

    def voice_frames(self) -> Frames:
        """The context segment of the default voice."""
        return self.checkpoint.voices[self.artifact.voices.default.profile_id].segment


def open_model(
    artifact: Artifact, device: torch.device | str = "cpu", dtype: torch.dtype = torch.bfloat16
) -> Opened:
    """Read, verify and place the weights; they speak without end. Raises as ``load_checkpoint``."""
    backend = parse_backend(str(device))
    device = open_device(backend)
    fix_arithmetic(backend)
    checkpoint = load_checkpoint(artifact, device=device, dtype=dtype)
    config = replace(checkpoint.config, codebook_eos_id=NEVER)
    model = CsmModel(config, dtype, device, allocate=False)
    model.fill(checkpoint.state)
    return Opened(artifact, checkpoint, model, device)


def open_codec(opened: Opened, lanes: int) -> StreamingMimi:
    """Streams on a Mimi of their own: one has a single set of streams."""
    mimi = load_mimi(opened.artifact, opened.checkpoint.config, device=opened.device)
    return StreamingMimi(mimi, lanes)


def open_step(opened: Opened, lanes: int, chunk: int) -> FrameStep:
    """Lanes that run eagerly on every device."""
    return FrameStep(opened.model, open_codec(opened, lanes), lanes, chunk)


class Rig:
    """``lanes`` lanes on an opened model, with a codec of their own; recorded as a worker's are."""

    def __init__(self, opened: Opened, lanes: int, chunk: int) -> None:
        self.opened, self.lanes, self.chunk = opened, lanes, chunk
        self.step = open_step(opened, lanes, chunk)
        make_repeatable(self.step)
        self.engine = assemble(self.step, opened.artifact, opened.checkpoint)
        self._number = 0
        self._submitted: list[str] = []

    def generation(
        self, text: str = SENTENCE, *, prompted: bool = False, max_frames: int = MAX_FRAMES
    ) -> Generation:
        """A sampled one with a key and seed of its own; it never ends for silence."""
        self._number += 1
        return Generation(
            key=f"bench-{self._number}",
            text=text,
            speaker=0,
            voice_profile_id=self.opened.artifact.voices.default.profile_id,
            context_policy=CONTEXT_PROMPT if prompted else CONTEXT_NONE,
            max_frames=max_frames,
            temperature=TEMPERATURE,
            top_k=TOP_K,
            seed=self._number,
        )

    def submit(self, generation: Generation) -> None:
        self._submitted.append(generation.key)
        self.engine.submit(generation)

    def tick(self) -> list[Event]:
        """One round of the engine: what it emitted."""
        events: list[Event] = []
        self.engine.tick(events.extend)
        return events

    def fill(self, lanes: int) -> None:
        """Let ``lanes`` lanes speak without end."""
        for _ in range(lanes):
            self.submit(self.generation())
        while len(frames_of(self.tick())) < lanes:
            pass

    def speak_on(self) -> None:
        """One frame of every lane, all of which must be speaking."""
        found = len(frames_of(self.tick()))
        if found != self.lanes:
            raise RuntimeError(f"{found} of {self.lanes} lanes spoke")

    def clear(self) -> None:
        """End whatever is in the lanes."""
        for key in self._submitted:
            self.engine.stop(key)
        self._submitted.clear()
        self.tick()

    @contextmanager
    def filled(self, lanes: int) -> Iterator[None]:
        """``fill``, and empty lanes afterwards."""
        try:
            self.fill(lanes)
            yield
        finally:
            self.clear()


def frames_of(events: list[Event]) -> list[Frame]:
    return [event for event in events if isinstance(event, Frame)]
