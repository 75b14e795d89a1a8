"""The device against the CPU: the same contexts, logit for logit.

The CPU speaks greedily in float32 and its codes are forced on the device, so that every head is
compared on the same context. Where the device's best id is another, the two logits must have been
closer than twice the largest difference: the first such place is where a free run would part.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from benchmarks.gpu.target import HALF, WHOLE, Check, Target
from benchmarks.rig import Opened, open_model
from benchmarks.trace import Trace, trace
from gpu_worker.prompt import Frames, join

TEXTS: Final = ("Ready.", "The train leaves at half past seven.", "No, thank you.", "One, two.")
TOLERANCE: Final = {WHOLE: 1e-3, HALF: 0.1}
"""Largest difference of a logit, as a part of the largest logit of the CPU."""


def parity(target: Target) -> list[Check]:
    """One check per precision, each against the CPU in float32."""
    count = max(2, target.frames // 8)
    with torch.inference_mode():
        reference = open_model(target.artifact, "cpu", WHOLE)
        prompts = _prompts(reference)
        expected = [trace(reference, prompt, count) for prompt in prompts]
        del reference
        return [_compared(target, dtype, prompts, expected) for dtype in (WHOLE, HALF)]


def _prompts(opened: Opened) -> list[Frames]:
    """Four texts alone, and one after the voice's prompt."""
    texts = [opened.text_frames(text) for text in TEXTS]
    return [*texts, join([opened.voice_frames(), texts[0]])]


def _compared(
    target: Target, dtype: torch.dtype, prompts: list[Frames], expected: list[Trace]
) -> Check:
    opened = target.opened if dtype == HALF else open_model(target.artifact, target.device, dtype)
    found = [
        trace(opened, prompt, len(each.codes), each.codes)
        for prompt, each in zip(prompts, expected, strict=True)
    ]
    measured = differences(expected, found)
    limit = TOLERANCE[dtype]
    return Check(
        name=f"parity, {str(dtype).removeprefix('torch.')} against the CPU's float32",
        bound=f"logits within {limit:g} of the largest one",
        passed=measured["largest_difference"] <= limit * measured["largest_logit"],
        measured=measured,
    )


def differences(expected: list[Trace], found: list[Trace]) -> dict[str, Any]:
    """How far apart, how many best ids agree, and the first that does not: where, and the gap."""
    wanted = torch.stack([each.logits for each in expected])
    got = torch.stack([each.logits for each in found])
    best, second = wanted.topk(2, dim=-1).values.unbind(-1)
    parted = (got.argmax(dim=-1) != wanted.argmax(dim=-1)).nonzero()
    first: dict[str, Any] | None = None
    if len(parted):
        at = parted[0].tolist()
        gap = float(best[tuple(at)] - second[tuple(at)])
        first = dict(zip(("prompt", "frame", "codebook"), at, strict=True)) | {"logit_gap": gap}
    return {
        "codes": best.numel(),
        "codes_that_differ": len(parted),
        "largest_difference": float((got - wanted).abs().max()),
        "largest_logit": float(wanted.abs().max()),
        "first_divergence": first,
    }
