"""How far a quantized artifact says what its parent says, over twenty prompts.

The parent speaks greedily. Its words are then forced on the other, whose best ids are counted where
they are the parent's: both are asked the same question each time. Then the other speaks freely, and
how long it stays with the parent is counted. Weights that were never trained give flat logits:
which id is best turns on little there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from benchmarks.rig import Opened, open_model
from benchmarks.trace import Trace, trace
from gpu_worker.prompt import Frames, join
from shared.governance.artifacts import Artifact

TEXTS: Final = (
    "Ready.",
    "The train leaves at half past seven.",
    "No, thank you.",
    "One, two, three.",
    "The answer is ready, and it is a short one.",
    "Who is there?",
    "It rained all day, and nobody minded.",
    "Turn left at the bridge, then go on for a mile.",
    "Yes!",
    "Please say that again, a little slower.",
)
"""Each alone and after the voice's prompt: twenty prompts."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Agreement:
    """``same_ids`` and ``same_first_ids``: shares of all codes and of each frame's first.

    ``frames_alike`` is how many frames of free speech are wholly the parent's, the median and all.
    """

    prompts: int
    frames: int
    codes: int
    same_ids: float
    same_first_ids: float
    largest_difference: float
    largest_logit: float
    median_frames_alike: float
    frames_alike: tuple[int, ...]


def agreement(
    parent: Artifact, child: Artifact, frames: int, dtype: torch.dtype, say: Say
) -> Agreement:
    """Speak ``frames`` frames of every prompt. Raises SpeechError as loading does."""
    with torch.inference_mode():
        say(f"{parent.artifact_id} speaks")
        opened = open_model(parent, dtype=dtype)
        prompts = prompts_of(opened, frames)
        expected = [trace(opened, prompt, frames) for prompt in prompts]
        del opened
        say(f"{child.artifact_id} speaks")
        opened = open_model(child, dtype=dtype)
        pairs = list(zip(prompts, expected, strict=True))
        forced = [trace(opened, prompt, frames, each.codes) for prompt, each in pairs]
        free = [trace(opened, prompt, frames) for prompt in prompts]
    return compared(expected, forced, free)


def prompts_of(opened: Opened, frames: int) -> list[Frames]:
    """Twenty, or ten where the voice has no prompt; but those alone that leave room for speech."""
    texts = [opened.text_frames(text) for text in TEXTS]
    prompts = list(texts)
    if opened.artifact.voices.default.has_prompt:
        prompts += [join([opened.voice_frames(), text]) for text in texts]
    room = opened.model.config.max_seq_len - frames
    return [prompt for prompt in prompts if len(prompt) < room]


def compared(expected: list[Trace], forced: list[Trace], free: list[Trace]) -> Agreement:
    """``forced`` on the words of ``expected``, ``free`` on its own."""
    wanted = torch.stack([each.logits for each in expected])
    got = torch.stack([each.logits for each in forced])
    same = got.argmax(dim=-1) == wanted.argmax(dim=-1)
    alike = tuple(_frames_alike(ours, theirs) for ours, theirs in zip(expected, free, strict=True))
    return Agreement(
        prompts=len(expected),
        frames=same.shape[1],
        codes=same.numel(),
        same_ids=float(same.float().mean()),
        same_first_ids=float(same[:, :, 0].float().mean()),
        largest_difference=float((got - wanted).abs().max()),
        largest_logit=float(wanted.abs().max()),
        median_frames_alike=float(statistics.median(alike)),
        frames_alike=alike,
    )


def _frames_alike(one: Trace, other: Trace) -> int:
    same = (one.codes == other.codes).all(dim=1)
    return int(same.long().cumprod(dim=0).sum())
