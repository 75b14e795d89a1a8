"""One lane spoken greedily with every head's logits kept, on words of its own or of another's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from benchmarks.rig import Opened, open_step
from gpu_worker.model.cache import KVCache, span_for
from gpu_worker.prompt import Frames

CHUNK: Final = 32


@dataclass(frozen=True, slots=True)
class Trace:
    """What was said and how sure it was. codes [frames, 32], logits [frames, 32, ids]; on a CPU."""

    codes: Tensor
    logits: Tensor


class Noting:
    """Chooses the best id, or the one that is forced, and keeps every head's logits."""

    def __init__(self, ids: int, forced: Tensor | None) -> None:
        self._ids, self._forced = ids, forced
        self.logits: list[Tensor] = []

    def __call__(self, codebook: int, logits: Tensor) -> Tensor:
        scores = logits[:, : self._ids].float()
        self.logits.append(scores[0])
        if self._forced is None:
            return scores.argmax(dim=1)
        return self._forced[codebook : codebook + 1]


def trace(opened: Opened, prompt: Frames, count: int, forced: Tensor | None = None) -> Trace:
    """``count`` frames after ``prompt`` in one lane; ``forced`` [count, 32] are what is said."""
    config, device = opened.model.config, opened.device
    step = open_step(opened, 1, CHUNK)
    depth = KVCache(config.depth, 1, config.num_codebooks, opened.model.dtype, device)
    calls = opened.model.depth_calls(depth)
    speaking = torch.ones(1, dtype=torch.bool, device=device)
    for start in range(0, len(prompt), CHUNK):
        rows = slice(start, start + CHUNK)
        step.prefill(0, prompt.tokens[rows], prompt.mask[rows], start)
    codes, logits = [], []
    for frame in range(count):
        noting = Noting(config.codebook_size, None if forced is None else forced[frame].to(device))
        said = opened.model.decode_frame(step.hidden, calls, noting)
        step.repeat(said, speaking)
        step.feed(span_for(len(prompt) + frame + 1, step.window))
        codes.append(said[0].cpu())
        logits.append(torch.stack(noting.logits).cpu())
    return Trace(torch.stack(codes), torch.stack(logits))
