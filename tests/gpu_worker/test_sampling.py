"""Draws: greedy, top-k, temperature, ties, and noise that belongs to the request alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gpu_worker.sampling import FEW, Draw, LaneSampling, candidates_for, is_greedy, noise_table

CPU = torch.device("cpu")
VOCABULARY, CODEBOOK = 2051, 2048
GOLDEN_FIRST = [582872, 193722, 10266821, 4052523]
GOLDEN_LAST = [3879829, 15232498, 1528005, 14467289]


def draw(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 50,
    noise: Tensor | None = None,
    candidates: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Ids and best logits of one draw, the same settings in every lane."""
    lanes = logits.shape[0]
    sampling = LaneSampling.allocate(lanes, 1, 1, CPU)
    sampling.set_lane(0, temperature, top_k, seed=0, frames=1)
    sampling.temperature.fill_(sampling.temperature[0].item())
    sampling.top_k.fill_(int(sampling.top_k[0].item()))
    sampling.noise[:, 0, 0] = noise_table(5, lanes, 1)[:, 0]
    best = torch.zeros(lanes, 1)
    if candidates is None:
        candidates = candidates_for(1 if is_greedy(temperature, top_k) else top_k, CODEBOOK)
    row = sampling.noise[:, 0] if noise is None else noise.unsqueeze(1)
    ids = Draw(sampling, row, best, CODEBOOK, candidates)(0, logits)
    return ids, best[:, 0]


def random_logits(lanes: int, seed: int = 0) -> Tensor:
    return torch.randn(lanes, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, 50), (0.9, 1), (0.0, 1), (2.0, 1)])
def test_greedy(temperature: float, top_k: int) -> None:
    """Temperature 0 or top-k 1 takes the best id, whatever the noise."""
    logits = random_logits(6)

    ids, best = draw(logits, temperature=temperature, top_k=top_k)

    assert torch.equal(ids, logits[:, :CODEBOOK].argmax(dim=1))
    assert torch.equal(best, logits[:, :CODEBOOK].amax(dim=1))


def test_greedy_lane_beside_a_sampling_one() -> None:
    """A greedy lane gives the same id whether or not a neighbour needs more candidates."""
    logits = random_logits(3)
    few, _ = draw(logits, top_k=1, candidates=FEW)
    many, _ = draw(logits, top_k=1, candidates=CODEBOOK)

    assert torch.equal(few, logits[:, :CODEBOOK].argmax(dim=1))
    assert torch.equal(many, few)


@pytest.mark.parametrize("top_k", [1, 3, 50, FEW])
def test_more_candidates_change_no_code(top_k: int) -> None:
    """How many candidates are kept for the neediest lane is invisible to the others."""
    logits = random_logits(64)

    few, _ = draw(logits, temperature=1.3, top_k=top_k, candidates=FEW)
    all_of_them, _ = draw(logits, temperature=1.3, top_k=top_k, candidates=CODEBOOK)

    assert torch.equal(few, all_of_them)


@pytest.mark.parametrize("top_k", [1, 2, 50, 2048, 100_000])
def test_ids_beyond_the_codec_never_leave(top_k: int) -> None:
    """Ids from 2048 on are never drawn, however likely the model finds them."""
    logits = random_logits(128)
    logits[:, CODEBOOK:] = 1000.0

    ids, _ = draw(logits, temperature=2.0, top_k=top_k)

    assert int(ids.max()) < CODEBOOK


def test_only_the_best_k_are_drawn() -> None:
    """A thousand hot draws with top-k 5 stay inside the best five."""
    logits = random_logits(1).expand(1000, -1)
    best = set(logits[0, :CODEBOOK].topk(5).indices.tolist())

    ids, _ = draw(logits, temperature=50.0, top_k=5)

    assert set(ids.tolist()) == best


def test_equal_logits_go_to_the_lower_id() -> None:
    """Ties are broken by the id: greedy takes the lowest, top-k keeps the lowest."""
    logits = torch.zeros(400, VOCABULARY)
    logits[:, [7, 300, 2047]] = 1.0

    assert set(draw(logits, top_k=1)[0].tolist()) == {7}
    assert set(draw(logits, temperature=1.0, top_k=2)[0].tolist()) == {7, 300}


def test_minus_zero_ties_with_zero() -> None:
    """Minus zero counts as zero, so the lower id wins on every machine."""
    logits = torch.full((1, VOCABULARY), -1.0)
    logits[0, 4], logits[0, 9] = -0.0, 0.0

    assert draw(logits, top_k=1)[0].item() == 4


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 8), (0.7, 50), (1.5, 2048)])
def test_distribution(temperature: float, top_k: int) -> None:
    """Frequencies of 12 000 draws agree with the softmax of the kept logits (chi square)."""
    logits = torch.full((1, VOCABULARY), -2.0)
    logits[0, :12] = torch.linspace(2.0, -1.5, 12)
    count = 12_000
    noise = noise_table(11, count, 1)[:, 0]

    ids, _ = draw(logits.expand(count, -1), temperature=temperature, top_k=top_k, noise=noise)

    kept = logits[0, :CODEBOOK].double().sort(descending=True, stable=True)
    expected = torch.softmax(kept.values[:top_k] / temperature, 0) * count
    observed = torch.bincount(ids, minlength=CODEBOOK)[kept.indices[:top_k]].double()
    usual = expected >= 5
    folded_expected = torch.cat([expected[usual], expected[~usual].sum()[None]])
    folded_observed = torch.cat([observed[usual], observed[~usual].sum()[None]])
    folded = folded_expected > 0
    chi2 = ((folded_observed - folded_expected) ** 2 / folded_expected)[folded].sum().item()
    freedom = int(folded.sum()) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("value", [float("nan"), -float("nan"), float("inf")])
@pytest.mark.parametrize("top_k", [1, 50])
def test_a_non_finite_logit_shows(value: float, top_k: int) -> None:
    """One bad logit makes the row's best non-finite and no other row's; the id stays legal."""
    logits = random_logits(3)
    logits[1, 77] = value

    ids, best = draw(logits, top_k=top_k)

    assert best.isfinite().tolist() == [True, False, True]
    assert 0 <= int(ids.min()) <= int(ids.max()) < CODEBOOK


def test_a_row_of_nothing_shows() -> None:
    """A row without one finite logit is not mistaken for speech."""
    logits = random_logits(2)
    logits[0] = float("-inf")

    ids, best = draw(logits)

    assert best.isfinite().tolist() == [False, True]
    assert int(ids.max()) < CODEBOOK


def test_noise_is_philox_keyed_by_the_seed() -> None:
    """The table is the upper 24 bits of the published generator's words, low word first."""
    words = np.random.Philox(key=123).random_raw(2)
    halves = [int(w) >> shift & 0xFFFFFFFF for w in words for shift in (0, 32)]

    assert noise_table(123, 1, 32)[0, :4].tolist() == [half >> 8 for half in halves]


def test_noise_has_golden_values() -> None:
    """Seed 0 begins with these numbers on every machine: a change would change all speech."""
    assert noise_table(0, 2, 32)[0, :4].tolist() == GOLDEN_FIRST
    assert noise_table((1 << 53) - 1, 2, 32)[1, :4].tolist() == GOLDEN_LAST


@given(seed=st.integers(0, (1 << 53) - 1), frames=st.integers(1, 40), more=st.integers(1, 40))
def test_noise_of_a_longer_budget_begins_the_same(seed: int, frames: int, more: int) -> None:
    """A request's noise does not depend on how long it may become."""
    short, long = noise_table(seed, frames, 32), noise_table(seed, frames + more, 32)

    assert torch.equal(short, long[:frames])
    assert 0 <= int(short.min()) <= int(short.max()) < 1 << 24


def test_noise_never_repeats() -> None:
    """No two of frames, codebooks or neighbouring seeds share their noise."""
    tables = torch.stack([noise_table(seed, 64, 32) for seed in range(16)])

    rows = tables.reshape(-1, 32).tolist()
    assert len({tuple(row) for row in rows}) == len(rows)
    columns = tables.transpose(1, 2).reshape(-1, 64).tolist()
    assert len({tuple(column) for column in columns}) == len(columns)
