"""Draws: greedy, top-k, temperature, ties, and noise that belongs to the request alone."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize(
    ("temperature", "top_k"), [(0.0, 50), (0.9, 1), (0.0, 1), (2.0, 1), (1e-50, 50), (1e-40, 50)]
)
def test_greedy(temperature: float, top_k: int) -> None:
    """Temperature 0, or what fp32 takes for it, or top-k 1 takes the best id whatever the noise."""
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


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.0, 1e-45, 3e38])
def test_nothing_but_ties(value: float) -> None:
    """Where all logits are equal, whatever they are, the lowest ids are kept, and evenly drawn."""
    noise = (2 * torch.arange(400) + 1) * (1 << 24) // 800

    ids, _ = draw(torch.full((400, VOCABULARY), value), top_k=5, noise=noise)

    assert torch.bincount(ids, minlength=CODEBOOK)[:6].tolist() == [80, 80, 80, 80, 80, 0]


def test_every_codebook_draws_with_its_own_noise() -> None:
    """Of one frame's noise each codebook takes its own number, and each lane its own row."""
    sampling = LaneSampling.allocate(2, 1, 3, CPU)
    for lane in range(2):
        sampling.set_lane(lane, 1.0, 2, seed=lane, frames=1)
    noise = torch.tensor([[0, 1, 0], [1, 1, 0]]) * ((1 << 24) - 1)
    logits = torch.full((2, VOCABULARY), -90.0)
    logits[:, [3, 9]] = 0.0

    one = Draw(sampling, noise, torch.zeros(2, 3), CODEBOOK, FEW)

    drawn = torch.stack([one(codebook, logits) for codebook in range(3)], dim=1)
    assert drawn.tolist() == [[3, 9, 3], [9, 9, 3]]


def test_noise_on_the_border_is_the_next_candidate_s() -> None:
    """Half of the noise is the first of two equals', and the half itself the second's."""
    logits = torch.full((1, VOCABULARY), -90.0)
    logits[0, [3, 9]] = 0.0

    drawn = [
        draw(logits, top_k=2, noise=torch.tensor([noise]))[0].item()
        for noise in (0, (1 << 23) - 1, 1 << 23, (1 << 24) - 1)
    ]

    assert drawn == [3, 3, 9, 9]


def test_minus_zero_ties_with_zero() -> None:
    """Minus zero counts as zero, so the lower id wins on every machine."""
    logits = torch.full((1, VOCABULARY), -1.0)
    logits[0, 4], logits[0, 9] = -0.0, 0.0

    assert draw(logits, top_k=1)[0].item() == 4


def reference(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Probability of each id, written plainly: the best k, lower id first among equals, softmax."""
    values = logits[:CODEBOOK].double().tolist()
    best = sorted(range(CODEBOOK), key=lambda each: (-values[each], each))[:top_k]
    chances = torch.zeros(CODEBOOK, dtype=torch.float64)
    kept = torch.tensor([values[each] for each in best], dtype=torch.float64)
    chances[best] = torch.softmax(kept / temperature, 0)
    return chances


def chi_square(observed: Tensor, expected: Tensor) -> tuple[float, int]:
    """The statistic and its degrees of freedom; cells expected below 5 times are one cell."""
    usual = expected >= 5
    cells = torch.stack([observed[usual], expected[usual]])
    rest = torch.stack([observed[~usual].sum(), expected[~usual].sum()])
    if rest[1] > 0:
        cells = torch.cat([cells, rest[:, None]], dim=1)
    statistic = ((cells[0] - cells[1]) ** 2 / cells[1]).sum().item()
    return statistic, cells.shape[1] - 1


def bound(freedom: int) -> float:
    """What a chi square of that freedom exceeds once in a million (Wilson and Hilferty).

    The draws are of fixed seeds, so a run passes always or never; the bound only says how unlucky
    right draws would have to be for a wrong verdict when the test is written.
    """
    share = 2 / (9 * freedom)
    return freedom * (1 - share + 4.753 * math.sqrt(share)) ** 3


@pytest.mark.parametrize(
    ("temperature", "top_k"),
    [(1.0, 8), (0.7, 50), (0.9, 50), (0.9, FEW), (0.9, FEW + 1), (1.5, 2048), (0.3, 2), (9.0, 200)],
)
def test_distribution(temperature: float, top_k: int) -> None:
    """Frequencies of 12 000 draws agree with the softmax of the kept logits (chi square)."""
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(11)) * 1.5
    logits[CODEBOOK:] = 50.0
    count = 12_000
    noise = noise_table(11, count // 32, 32).flatten()

    ids, _ = draw(logits.expand(len(noise), -1), temperature=temperature, top_k=top_k, noise=noise)

    chances = reference(logits, temperature, top_k)
    observed = torch.bincount(ids, minlength=CODEBOOK).double()
    assert observed[chances == 0].sum() == 0
    statistic, freedom = chi_square(observed, chances * len(noise))
    assert statistic < bound(freedom)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.9 * 1.1, 50), (0.9, 45), (0.9, 2048)])
def test_the_distribution_test_would_notice(temperature: float, top_k: int) -> None:
    """Ten per cent of temperature or five of fifty candidates are too far off to pass it."""
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(11)) * 1.5
    noise = noise_table(11, 375, 32).flatten()

    ids, _ = draw(logits.expand(len(noise), -1), temperature=0.9, top_k=50, noise=noise)

    chances = reference(logits, temperature, top_k)
    observed = torch.bincount(ids, minlength=CODEBOOK).double()
    statistic, freedom = chi_square(observed, chances * len(noise))
    assert observed[chances == 0].sum() > 0 or statistic > bound(freedom)


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
    """No two of frames, codebooks or seeds share their noise, nor a shifted piece of it.

    Any four numbers in a row are 96 bits: of two million such windows none may occur twice.
    """
    seeds = [*range(16), 1 << 32, (1 << 32) + 1, (1 << 53) - 1, (1 << 53) - 2]
    tables = torch.stack([noise_table(seed, 1024, 32) for seed in seeds])

    for direction in (tables, tables.transpose(1, 2)):
        flat = direction.reshape(len(seeds), -1)
        low = flat[:, :-3] | flat[:, 1:-2] << 24
        high = flat[:, 2:-1] | flat[:, 3:] << 24
        windows = torch.stack([low.flatten(), high.flatten()], dim=1).numpy()
        keys = np.ascontiguousarray(windows).view([("low", "<i8"), ("high", "<i8")])
        assert len(np.unique(keys)) == len(keys)


def test_noise_is_uniform() -> None:
    """Every codebook's numbers fill 64 equal bins evenly (chi square over all seeds)."""
    tables = torch.stack([noise_table(seed, 512, 32) for seed in range(20)])

    for codebook in range(32):
        bins = torch.bincount(tables[..., codebook].flatten() >> 18, minlength=64).double()
        statistic, freedom = chi_square(bins, torch.full((64,), bins.sum().item() / 64))
        assert statistic < bound(freedom)


@pytest.mark.parametrize("noise", [0, (1 << 24) - 1])
@pytest.mark.parametrize("top_k", [2, FEW, 2048, 5000])
def test_the_ends_of_the_noise(noise: int, top_k: int) -> None:
    """The least noise draws the best id, the most draws the worst that is kept and has weight."""
    logits = torch.full((1, VOCABULARY), -float("inf"))
    logits[0, :100] = -torch.arange(100.0) / 100

    ids, _ = draw(logits, top_k=top_k, noise=torch.tensor([noise]))

    assert ids.item() == (0 if noise == 0 else min(top_k, 100) - 1)


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1e30])
def test_extreme_temperatures(temperature: float) -> None:
    """A tiny temperature is greedy, a huge one draws evenly; neither leaves the candidates."""
    logits = random_logits(1).expand(4000, -1)
    best = logits[0, :CODEBOOK].topk(4).indices.tolist()

    ids, shown = draw(logits, temperature=temperature, top_k=4)

    assert shown.isfinite().all()
    counts = torch.bincount(ids, minlength=CODEBOOK)[best].tolist()
    assert sum(counts) == 4000
    assert counts[0] == 4000 if temperature < 1 else min(counts) > 800
