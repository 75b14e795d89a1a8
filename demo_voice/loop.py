"""A training: steps with a schedule, checkpoints that a second run goes on from, the time left.

Every step is a function of the seed and its number, so that an interrupted training goes on as if
it had not been interrupted.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from demo_voice.paths import replace_whole
from demo_voice.profiles import Steps
from demo_voice.progress import Progress, Tell

CLIP = 1.0
HELD = "held_"
"""Begins the name of a part that is told as it is, not smoothed: it comes once in a while."""
AVERAGE = 0.998
"""What the running mean of the weights keeps at each step; it is the mean that is used."""


class Task(Protocol):
    """What is trained. ``weights`` are leaf tensors by name; ``loss`` draws its own samples."""

    def weights(self) -> dict[str, Tensor]: ...

    def loss(self, step: int, random: np.random.Generator) -> tuple[Tensor, dict[str, float]]: ...


def train(
    name: str, task: Task, steps: Steps, path: Path, seed: int, tell: Tell, decay: float = 0.01
) -> None:
    """Run to ``steps.steps``, from ``path`` on; leaves the averaged weights in place."""
    weights = task.weights()
    optimiser = torch.optim.AdamW(
        _groups(weights, decay), lr=steps.rate, betas=(0.9, 0.98), fused=True
    )
    mean = {each: tensor.detach().clone() for each, tensor in weights.items()}
    begin = _restore(path, weights, mean, optimiser)
    progress = Progress(name, steps.steps, tell, begin)
    recent: dict[str, float] = {}
    for step in range(begin, steps.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step, steps)
        random = np.random.default_rng((seed, step))
        torch.manual_seed(int(random.integers(2**31)))
        loss, parts = task.loss(step, random)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        optimiser.step()
        _average(mean, weights, min(AVERAGE, (step + 1) / (step + 10)))
        for key, value in parts.items():
            recent[key] = value if key.startswith(HELD) else _smooth(recent.get(key, value), value)
        if (step + 1) % steps.save_every == 0 or step + 1 == steps.steps:
            _save(path, step + 1, weights, mean, optimiser)
        progress.advance(1, " ".join(f"{key} {value:.3f}" for key, value in recent.items()))
    with torch.no_grad():
        for each, tensor in weights.items():
            tensor.copy_(mean[each])


def rate_at(step: int, steps: Steps) -> float:
    """The learning rate: up in a line, down as a cosine to a fiftieth."""
    if step < steps.warm_up:
        return steps.rate * (step + 1) / steps.warm_up
    part = (step - steps.warm_up) / max(1, steps.steps - steps.warm_up)
    return steps.rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * part)))


def is_done(path: Path, steps: Steps) -> bool:
    """Whether the training that ``path`` belongs to has come to its end."""
    return path.exists() and torch.load(path, weights_only=True)["step"] >= steps.steps


def averaged(path: Path) -> dict[str, Tensor]:
    """The averaged weights of a training that has been saved."""
    mean: dict[str, Tensor] = torch.load(path, weights_only=True)["mean"]
    return mean


def _smooth(before: float, now: float) -> float:
    return 0.9 * before + 0.1 * now


def _groups(weights: dict[str, Tensor], decay: float) -> Iterable[dict[str, Any]]:
    matrices = [tensor for tensor in weights.values() if tensor.ndim > 1]
    others = [tensor for tensor in weights.values() if tensor.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": decay},
        {"params": others, "weight_decay": 0.0},
    ]


@torch.no_grad()
def _average(mean: dict[str, Tensor], weights: dict[str, Tensor], keep: float) -> None:
    for name, tensor in weights.items():
        mean[name].lerp_(tensor, 1 - keep)


def _save(
    path: Path,
    step: int,
    weights: dict[str, Tensor],
    mean: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
) -> None:
    buffer = io.BytesIO()
    detached = {name: tensor.detach() for name, tensor in weights.items()}
    state = {"step": step, "weights": detached, "mean": mean, "optimiser": optimiser.state_dict()}
    torch.save(state, buffer)
    replace_whole(path, buffer.getvalue())


def _restore(
    path: Path,
    weights: dict[str, Tensor],
    mean: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
) -> int:
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(saved["weights"][name])
            mean[name].copy_(saved["mean"][name])
    optimiser.load_state_dict(saved["optimiser"])
    return int(saved["step"])
