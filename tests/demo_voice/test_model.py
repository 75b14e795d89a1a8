"""What is trained is what serves: the same numbers, by another way to attend."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from demo_voice.batches import collate
from demo_voice.loop import averaged, is_done, rate_at, train
from demo_voice.model import Pupil, csm_config
from demo_voice.objective import Objective, codebook_weights, make_heads
from demo_voice.profiles import SMOKE, Steps
from demo_voice.teacher import Teacher, spoken_words
from gpu_worker.model.cache import KVCache, LaneChunk, span_for
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.layouts import torchtune_shapes
from tests.demo_voice.stock import library

CONFIG = csm_config(SMOKE)


def pupil(seed: int = 0) -> Pupil:
    made = Pupil(CONFIG)
    centres = torch.randn(32, SMOKE.codebook_size, 8, generator=torch.Generator().manual_seed(9))
    made.initialise(centres, torch.Generator().manual_seed(seed))
    return made


def served(state: dict[str, Tensor]) -> CsmModel:
    """The weights in the service's model, loaded as an artifact's are."""
    model = CsmModel(CONFIG, allocate=False)
    model.fill({name: tensor.clone() for name, tensor in state.items()})
    return model


def test_the_state_has_the_published_layout() -> None:
    """Names and shapes are torchtune's, so that the loader takes them as they are."""
    state = pupil().state()

    assert {name: tuple(each.shape) for name, each in state.items()} == torchtune_shapes(CONFIG)


def test_every_weight_is_a_leaf_of_its_own() -> None:
    """The leaves hold as many numbers as the layout, none twice, and all of them learn."""
    trained = pupil()
    leaves, total = trained.weights(), sum(each.numel() for each in trained.state().values())
    assert sum(each.numel() for each in leaves.values()) == total

    stock, random_ = library(), random.Random(6)
    samples = [stock.draw(random_, 0.9) for _ in range(32)]
    batch = collate(samples, 0)
    loss, _ = objective(trained)(batch, spoken_words(samples, batch), 0.9)
    loss.backward()  # type: ignore[no-untyped-call]

    assert all(each.grad is not None and bool(each.grad.any()) for each in leaves.values())


def test_a_step_reaches_the_named_weights() -> None:
    """Packed projections share their memory with the names that are exported."""
    trained = pupil()
    before = {name: each.clone() for name, each in trained.state().items()}
    with torch.no_grad():
        for leaf in trained.weights().values():
            leaf.add_(1.0)

    assert all(torch.equal(each, before[name] + 1) for name, each in trained.state().items())


@torch.no_grad()
def test_training_and_serving_agree() -> None:
    """A prompted sample gives the same hidden states and logits as the engine's caches do."""
    trained = pupil()
    batch = collate([library().draw(random.Random(5), 0.9)], 0)
    embedded = trained.embed(batch.text, batch.is_text, batch.codes, batch.is_audio)
    hidden = trained.backbone(embedded)[0][0]

    model = served(trained.state())
    rows = batch.shape[1]
    tokens = torch.cat([batch.codes[0], batch.text[0, :, None]], dim=1)
    mask = torch.cat([batch.is_audio[0, :, None].expand(-1, 32), batch.is_text[0, :, None]], dim=1)
    cache = KVCache(CONFIG.backbone, 1, 512, torch.float32, torch.device("cpu"))
    turns = model.rotation(torch.arange(rows))
    attention = LaneChunk(cache, 0, 0, turns, span_for(rows, 512))
    expected = model.backbone_rows(model.embed_frames(tokens, mask), attention)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)

    depth = KVCache(CONFIG.depth, rows, 32, torch.float32, torch.device("cpu"))
    seen: list[Tensor] = []

    def greedy(codebook: int, logits: Tensor) -> Tensor:
        seen.append(logits)
        return logits[:, : SMOKE.codebook_size].argmax(dim=1)

    codes = model.decode_frame(expected, model.depth_calls(depth), greedy)
    torch.testing.assert_close(
        trained.depth(expected, codes, 32), torch.stack(seen[1:], dim=1), rtol=1e-3, atol=1e-3
    )


def objective(trained: Pupil) -> Objective:
    torch.manual_seed(0)
    heads = make_heads(SMOKE.backbone.hidden_size, 4)
    weights = codebook_weights([1.0, 0.3, 0.1], 32)
    return Objective(trained, heads, (1,), weights, SMOKE.live_codebooks)


def test_the_model_learns(tmp_path: Path) -> None:
    """A few dozen steps on a tiny corpus lower every part of the loss."""
    trained = pupil()
    steps = Steps(24, 4, 1e-2, 2, 24)
    teacher = Teacher(library(), objective(trained), steps)

    def parts() -> dict[str, float]:
        torch.manual_seed(1)
        return teacher.loss(30, np.random.default_rng(1))[1]

    before = parts()
    train("model", teacher, steps, tmp_path / "model.pt", 1, lambda _: None)
    after = parts()

    assert all(after[name] < before[name] for name in ("first", "depth", "phones", "words"))


def test_validation_is_told_and_changes_nothing(tmp_path: Path) -> None:
    """The held-out loss comes with the first step, draws nothing and has no gradient."""
    stock, trained = library(), pupil()
    held = collate(stock.held_out(), 0)
    judge = objective(trained)
    state = torch.get_rng_state()

    first, second = judge.held_out(held), judge.held_out(held)

    assert torch.equal(torch.get_rng_state(), state)
    assert first == second
    assert set(first) == {"held_first", "held_depth"}
    told: list[str] = []
    teacher = Teacher(stock, judge, Steps(1, 2, 1e-3, 1, 1))
    train("model", teacher, Steps(1, 2, 1e-3, 1, 1), tmp_path / "model.pt", 1, told.append)
    assert "held_first" in told[-1]


class Sum:
    """A ``loop.Task`` whose weights go where its random numbers pull them."""

    def __init__(self) -> None:
        self.weight = torch.zeros(3, 2, requires_grad=True)
        self.steps: list[int] = []

    def weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def loss(self, step: int, random: np.random.Generator) -> tuple[Tensor, dict[str, float]]:
        self.steps.append(step)
        pull = torch.from_numpy(random.standard_normal((3, 2))).float() + torch.rand(3, 2)
        return ((self.weight - pull) ** 2).sum(), {}


class Stopped(Exception):
    """The machine goes away."""


def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """From its last checkpoint it takes the same steps, and ends with the same weights."""
    steps = Steps(12, 1, 0.1, 2, 4)
    whole, broken, resumed = Sum(), Sum(), Sum()
    train("whole", whole, steps, tmp_path / "whole.pt", 1, lambda _: None)

    def stop(step: int, random: np.random.Generator) -> tuple[Tensor, dict[str, float]]:
        if step == 9:
            raise Stopped
        return Sum.loss(broken, step, random)

    broken.loss = stop  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        train("broken", broken, steps, tmp_path / "broken.pt", 1, lambda _: None)
    assert not is_done(tmp_path / "broken.pt", steps)
    train("resumed", resumed, steps, tmp_path / "broken.pt", 1, lambda _: None)

    assert resumed.steps == [8, 9, 10, 11]
    assert torch.equal(resumed.weight, whole.weight)
    assert is_done(tmp_path / "broken.pt", steps)
    assert torch.equal(averaged(tmp_path / "broken.pt")["weight"], whole.weight)


def test_the_rate_rises_and_falls() -> None:
    """Up to the full rate over the warm-up, down to a fiftieth at the end."""
    steps = Steps(100, 1, 1.0, 10, 100)

    assert rate_at(0, steps) == pytest.approx(0.1)
    assert rate_at(10, steps) == pytest.approx(1.0)
    assert rate_at(100, steps) == pytest.approx(0.02)
