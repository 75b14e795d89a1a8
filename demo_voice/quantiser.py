"""The codebooks, fitted to the trained latents: k-means, residual by residual.

The first codebook is a rough name of the whole frame, and gives no sound of its own at first; the
others build the latent up from nothing. Code 0 of the first codebook is parked where no latent
comes, so that a frame of zeros only ever means the end. Codebooks behind the live ones hold nothing
but the origin: they are always code 0, the first of equals, and whatever is drawn of them is
silent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from demo_voice.codec import FAR, codebooks, set_centroids
from demo_voice.profiles import Profile
from shared.wav import CODEBOOKS

ROUNDS = 20
_SAMPLE = 40_000


def fit(mimi: Any, points: Tensor, profile: Profile) -> list[float]:
    """Fill all codebooks from ``points`` [frames, codebook_dim].

    Returns the share of the energy that is left before each of the live codebooks 1 ...
    """
    books, codes = codebooks(mimi), profile.codebook_size
    quantizer = mimi.quantizer
    with torch.no_grad():
        quantizer.rvq_first.input_proj.weight.copy_(quantizer.rvq_rest.input_proj.weight)
        quantizer.rvq_first.output_proj.weight.zero_()
    far = torch.full((1, points.shape[1]), FAR)
    set_centroids(books[0], torch.cat([far, k_means(points, codes - 1, 1)]))
    residual, left = points.clone(), []
    whole = points.square().sum(dim=1).mean().clamp(min=1e-9)
    for index in range(1, profile.live_codebooks):
        left.append(float(residual.square().sum(dim=1).mean() / whole))
        centres = k_means(residual, codes, 1 + index)
        set_centroids(books[index], centres)
        residual -= centres[nearest(residual, centres)]
    for book in books[profile.live_codebooks : CODEBOOKS]:
        set_centroids(book, torch.zeros(codes, points.shape[1]))
    return left


def k_means(points: Tensor, count: int, seed: int) -> Tensor:
    """[count, dimension] centroids; ones that hold almost nothing are placed anew."""
    generator = torch.Generator().manual_seed(seed)
    sample = points[torch.randperm(len(points), generator=generator)[:_SAMPLE]]
    centres = _spread_out(sample, count, generator)
    for round_ in range(ROUNDS):
        owners = nearest(sample, centres)
        sizes = torch.bincount(owners, minlength=count)
        sums = torch.zeros_like(centres).index_add_(0, owners, sample)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
        poor = sizes < 0.08 * len(sample) / count
        if round_ < ROUNDS - 4 and poor.any():
            fresh = torch.randint(len(sample), (int(poor.sum()),), generator=generator)
            centres[poor] = sample[fresh]
    return centres


def _spread_out(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The centroids to begin with: each drawn by its squared distance from those before it."""
    chosen = [points[int(torch.randint(len(points), (), generator=generator))]]
    distance = (points - chosen[0]).square().sum(dim=1)
    while len(chosen) < count:
        index = int(torch.multinomial(distance + 1e-12, 1, generator=generator))
        chosen.append(points[index])
        distance = torch.minimum(distance, (points - points[index]).square().sum(dim=1))
    return torch.stack(chosen)


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """The nearest centroid of each point, int64 [points]."""
    parts: tuple[Tensor, ...] = torch.split(points, 20_000)
    return torch.cat([torch.cdist(part, centres).argmin(dim=1) for part in parts])
