"""Elementwise functions whose last bit must not depend on where in a batch a number stands.

Torch computes most numbers of an elementwise loop by vector instructions and the rest of a stretch
one by one, where an exponential or a complex product may differ in the last bit. Threads share a
longer loop in equal stretches, whatever the rows: with 3 threads and 10 lanes some numbers of some
lanes would be such a rest. Then one thread does it all, and every row is treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

GRAIN: Final = 32_768
"""Numbers per thread from which on torch shares a loop (``at::internal::GRAIN_SIZE``)."""
VECTORS: Final = 64
"""Numbers that one turn of a vectorized loop takes, at most (two AVX-512 registers of bf16)."""


def evenly(function: Callable[[Tensor], Tensor], numbers: Tensor) -> Tensor:
    """``function(numbers)``, the same for equal rows, on any number of threads."""
    if numbers.numel() <= GRAIN or numbers.device.type != "cpu":
        return function(numbers)
    threads = torch.get_num_threads()
    if are_stretches_whole(numbers.numel(), numbers.shape[-1], threads):
        return function(numbers)
    torch.set_num_threads(1)
    try:
        return function(numbers)
    finally:
        torch.set_num_threads(threads)


def are_stretches_whole(numbers: int, row: int, threads: int) -> bool:
    """Whether each thread gets whole rows and whole vectors of a loop over so many numbers."""
    stretch = -(-numbers // min(threads, -(-numbers // GRAIN)))
    return stretch == numbers or stretch % math.lcm(VECTORS, row) == 0
