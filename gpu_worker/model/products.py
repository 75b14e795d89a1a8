"""Products of rows by a fixed matrix, each keeping the matrix in the layout its device reads best.

A step of CSM-1B on a CPU is bound by reading its weights. Row-major matrices are read at half the
speed of oneDNN's blocked layout, whatever the number of rows, so a matrix of some size is reordered
once while loading and kept in that layout alone. One layout serves the rows of a step and of a
prefill chunk: results are bitwise the same whichever number of rows it was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

REORDERED_FROM_BYTES: Final = 1 << 19
"""A smaller matrix stays in a core's cache, and oneDNN's call costs more than its layout saves."""
_DENSE_DTYPES: Final = (torch.float32, torch.bfloat16)


class Product(Protocol):
    """``product(rows)`` is rows [n, in] times the transposed matrix: [n, out], in rows' dtype.

    It never changes, so copies of what holds it share it.
    """

    @property
    def nbytes(self) -> int: ...

    def __call__(self, rows: Tensor) -> Tensor: ...


Make = Callable[[Tensor], Product]
"""Takes over a dense matrix [out, in]; whether it keeps that memory is its own business."""


class _Shared:
    """Is its own deep copy."""

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


class Plain(_Shared):
    """The matrix as it is: what cuBLAS wants, and small matrices on a CPU."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self._weight)


class Reordered(_Shared):
    """oneDNN's blocked layout, on a CPU. These are the operators that torch's inductor emits."""

    def __init__(self, weight: Tensor) -> None:
        self.nbytes = weight.nbytes
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, rows: Tensor) -> Tensor:
        product: Tensor = self._multiply(rows, self._weight, None, "none", [], "")
        return product


def product_of(weight: Tensor) -> Product:
    """The fastest of the two for this matrix on its device that gives every row the same sums."""
    return Reordered(weight) if is_worth_reordering(weight) else Plain(weight)


def is_worth_reordering(weight: Tensor) -> bool:
    """Also whenever several threads multiply, for the sake of the lanes.

    With two threads MKL, which computes a plain fp32 product, sums some rows of 3, 5, 6, 7 or 9 in
    another order than the rest: a lane's bits would depend on its number. oneDNN's do not.
    """
    return (
        weight.device.type == "cpu"
        and (weight.nbytes >= REORDERED_FROM_BYTES or torch.get_num_threads() > 1)
        and weight.dtype in _DENSE_DTYPES
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and (weight.dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
