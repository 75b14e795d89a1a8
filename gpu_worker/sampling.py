"""Drawing one code per lane: temperature, top-k and noise that depends on nothing but the request.

Noise is a table of 24-bit integers, one per (frame, codebook), from Philox keyed by the request's
seed: the same in any lane, company, process or machine. A draw is an inverse CDF over the top-k
candidates in fixed point: weights are rounded down to 2**-27 of the best one's and everything after
that is integer arithmetic, so no order of summation can change a code. Candidates are ordered by
(logit descending, id ascending); equal logits are told apart by the id, never by a sort's whim.
Logits are taken to fp32 first, also when the model runs in bf16.

Ids from ``codebook_size`` on exist in the model's vocabulary but not in the codec's: they are cut
off before anything is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

NOISE_BITS: Final = 24
_WEIGHT_BITS: Final = 27
# 2**27 x 2048 candidates x 2**24 stays below 2**63.
_MAX_CANDIDATES: Final = 1 << (63 - NOISE_BITS - _WEIGHT_BITS - 1)
_ID_BITS: Final = 16
_ID_MASK: Final = (1 << _ID_BITS) - 1
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
        """``frames`` rows of noise; temperature 0 or top_k 1 or less is greedy."""
        greedy = is_greedy(temperature, top_k)
        self.temperature[lane] = 1.0 if greedy else temperature
        self.top_k[lane] = 1 if greedy else top_k
        self.noise[lane, :frames].copy_(noise_table(seed, frames, self.noise.shape[2]))


def is_greedy(temperature: float, top_k: int) -> bool:
    return temperature == 0.0 or top_k <= 1


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
        self.allowed = ranks < sampling.top_k
        self.last = sampling.top_k.clamp(max=candidates) - 1
        self.backward_ids = _ID_MASK - torch.arange(codebook_size, device=noise.device)

    def __call__(self, codebook: int, logits: Tensor) -> Tensor:
        """``logits`` [lanes, vocabulary] -> ids int64 [lanes], all below ``codebook_size``."""
        scores = logits[:, : self.codebook_size].float()
        # A NaN sorts as the best candidate and so shows in ``best``.
        scores = scores.nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=float("-inf"))
        keys = (_ordered(scores) << _ID_BITS) | self.backward_ids
        if self.candidates == 1:
            ids = _ID_MASK - (keys.amax(dim=1) & _ID_MASK)
            self.best[:, codebook] = scores.gather(1, ids.unsqueeze(1)).squeeze(1)
            return ids
        kept = _ID_MASK - (keys.topk(self.candidates, dim=1).values & _ID_MASK)
        top = scores.gather(1, kept)
        self.best[:, codebook] = top[:, 0]
        weights = torch.exp((top - top[:, :1]) / self.temperature) * self.allowed
        cumulative = (weights * (1 << _WEIGHT_BITS)).to(torch.int64).cumsum(dim=1)
        threshold = (cumulative[:, -1:] * self.noise[:, codebook, None]) >> NOISE_BITS
        rank = torch.minimum((cumulative <= threshold).sum(dim=1, keepdim=True), self.last)
        return kept.gather(1, rank).squeeze(1)


def candidates_for(top_k: int, codebook_size: int) -> int:
    """The smallest supported number of candidates that covers ``top_k``."""
    if top_k <= 1:
        return 1
    return min(FEW if top_k <= FEW else codebook_size, codebook_size, _MAX_CANDIDATES)


def _ordered(values: Tensor) -> Tensor:
    """fp32 -> int64 that sorts the same; minus zero counts as zero."""
    bits = (values + 0.0).view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
