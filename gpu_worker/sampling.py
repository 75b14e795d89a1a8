"""Drawing one code per lane: temperature, top-k and noise that depends on nothing but the request.

Noise is a table of 24-bit integers, one per (frame, codebook), from Philox keyed by the request's
seed: the same in any lane, company, process or machine. A draw is an inverse CDF over the top-k
candidates in fixed point: weights are rounded down to 2**-27 of the best one's and everything after
that is integer arithmetic, so no order of summation can change a code. Candidates are ordered by
(logit descending, id ascending); equal logits are told apart by the id, never by a sort's whim:
each is widened to fp64 and lowered by a part of itself that grows with its id and is too small to
reach the next fp32 number, so that rounding to fp32 gives the logit back.

Ids from ``codebook_size`` on exist in the model's vocabulary but not in the codec's: they are cut
off before anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gpu_worker.model.even import evenly

NOISE_BITS: Final = 24
_WEIGHT_BITS: Final = 27
# 2**27 x 2048 candidates x 2**24 stays below 2**63.
_MAX_CANDIDATES: Final = 1 << (63 - NOISE_BITS - _WEIGHT_BITS - 1)
_TIE_BREAK: Final = 2.0**-41
"""Per id. 2**16 ids take 2**-25 of a logit away at most: half of fp32's spacing there."""
_ABOVE_ZERO: Final = 2.0**-200
"""Added to every logit: zeros need something to be lowered by a part of."""
SMALLEST_TEMPERATURE: Final = float(np.finfo(np.float32).tiny)
FEW: Final = 64
"""Candidates kept when no lane asks for more; the other size is the whole codebook."""


def noise_table(seed: int, frames: int, codebooks: int) -> Tensor:
    """Uniform integers in [0, 2**24), int64 [frames, codebooks]; a longer table begins the same.

    Philox 4x64-10 keyed by ``seed``, raw output as little-endian 32-bit words, the upper 24 bits
    of each: raw bit streams of numpy are stable across versions.
    """
    words = np.random.Philox(key=seed).random_raw(-(-frames * codebooks // 2))
    values = words.astype("<u8").view("<u4")[: frames * codebooks] >> (32 - NOISE_BITS)
    return torch.from_numpy(values.astype(np.int64).reshape(frames, codebooks))


@dataclass(slots=True)
class LaneSampling:
    """What every lane samples with, on the device, written in place at a join.

    ``temperature`` fp32 [lanes, 1], ``top_k`` int64 [lanes, 1], ``noise`` int64
    [lanes, frames, codebooks]. Greedy is temperature 1 and top_k 1.
    """

    temperature: Tensor
    top_k: Tensor
    noise: Tensor

    @classmethod
    def allocate(
        cls, lanes: int, frames: int, codebooks: int, device: torch.device
    ) -> LaneSampling:
        return cls(
            torch.ones((lanes, 1), dtype=torch.float32, device=device),
            torch.ones((lanes, 1), dtype=torch.int64, device=device),
            torch.zeros((lanes, frames, codebooks), dtype=torch.int64, device=device),
        )

    def set_lane(self, lane: int, temperature: float, top_k: int, seed: int, frames: int) -> None:
        """``frames`` rows of noise; greedy as ``is_greedy`` says."""
        greedy = is_greedy(temperature, top_k)
        self.temperature[lane] = 1.0 if greedy else temperature
        self.top_k[lane] = 1 if greedy else top_k
        self.noise[lane, :frames].copy_(noise_table(seed, frames, self.noise.shape[2]))


def is_greedy(temperature: float, top_k: int) -> bool:
    """A temperature below fp32's normal numbers is 0: dividing by it would leave no order."""
    return temperature < SMALLEST_TEMPERATURE or top_k <= 1


class Draw:
    """Picks the codes of one frame, codebook after codebook, for all lanes.

    ``noise`` int64 [lanes, codebooks] is this frame's row of each lane. ``candidates`` is a number
    of the host's choosing that covers every lane's top_k; it changes the cost, never a code.
    ``best`` fp32 [lanes, codebooks] collects each head's best logit: a row with a non-finite logit
    anywhere shows it there.
    """

    def __init__(
        self,
        sampling: LaneSampling,
        noise: Tensor,
        best: Tensor,
        codebook_size: int,
        candidates: int,
    ) -> None:
        self.noise, self.best = noise, best
        self.codebook_size = codebook_size
        self.candidates = candidates
        self.temperature = sampling.temperature
        ranks = torch.arange(candidates, device=noise.device)
        self.scale = (ranks < sampling.top_k) * float(1 << _WEIGHT_BITS)
        self.last = sampling.top_k.clamp(max=candidates) - 1
        ids = torch.arange(1, codebook_size + 1, dtype=torch.float64, device=noise.device)
        self.lowering = ids * -_TIE_BREAK
        self.above_zero = torch.full_like(ids, _ABOVE_ZERO)
        self.noises = torch.split(noise, 1, dim=1)
        self.bests = torch.split(best, 1, dim=1)

    def __call__(self, codebook: int, logits: Tensor) -> Tensor:
        """``logits`` [lanes, vocabulary] -> ids int64 [lanes], all below ``codebook_size``.

        A NaN sorts as the best candidate and so shows in ``best``; so does an infinity, which
        becomes one.
        """
        scores = logits[:, : self.codebook_size] + self.above_zero
        scores = torch.addcmul(scores, scores.abs(), self.lowering)
        if self.candidates == 1:
            most, ids = scores.max(dim=1, keepdim=True)
            self.bests[codebook].copy_(most)
            return ids.squeeze(1)
        kept, ids = scores.topk(self.candidates, dim=1)
        top = kept.float()
        best = top[:, :1]
        self.bests[codebook].copy_(best)
        weights = evenly(torch.exp, (top - best).div_(self.temperature)).mul_(self.scale)
        cumulative = weights.cumsum(dim=1, dtype=torch.int64)
        threshold = (cumulative[:, -1:] * self.noises[codebook]) >> NOISE_BITS
        rank = torch.searchsorted(cumulative, threshold, right=True)
        return ids.gather(1, torch.minimum(rank, self.last)).squeeze(1)


def candidates_for(top_k: int, codebook_size: int) -> int:
    """The smallest supported number of candidates that covers ``top_k``."""
    if top_k <= 1:
        return 1
    return min(FEW if top_k <= FEW else codebook_size, codebook_size, _MAX_CANDIDATES)
