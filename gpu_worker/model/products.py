"""Products of rows by a fixed matrix, each keeping the matrix in the layout its device reads best.

A step of CSM-1B on a CPU is bound by reading its weights. Row-major matrices are read at half the
speed of oneDNN's blocked layout, whatever the number of rows, so a matrix of some size is reordered
once while loading and kept in that layout alone. One layout serves the rows of a step and of a
prefill chunk: results are bitwise the same whichever number of rows it was made for. Matrices of
quantized artifacts stay int8 there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from gpu_worker.model.weights import copied

REORDERED_FROM_BYTES: Final = 1 << 19
"""A smaller matrix stays in a core's cache, and oneDNN's call costs more than its layout saves."""
FBGEMM: Final = "fbgemm"
SMALLEST_PEAK: Final = 1e-30
_DENSE_DTYPES: Final = (torch.float32, torch.bfloat16)


class Product(Protocol):
    """``product(rows)`` is rows [n, in] times the transposed matrix: [n, out], in rows' dtype.

    It never changes, so copies of what holds it share it.
    """

    @property
    def nbytes(self) -> int: ...

    def __call__(self, rows: Tensor) -> Tensor: ...

    def onto(self, rows: Tensor, sums: Tensor) -> Tensor:
        """``sums`` [n, out] and the product, added."""
        ...


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

    def onto(self, rows: Tensor, sums: Tensor) -> Tensor:
        return functional.linear(rows, self._weight).add_(sums)


class Reordered(_Shared):
    """oneDNN's blocked layout, on a CPU. These are the operators that torch's inductor emits.

    ``onto`` adds before it rounds.
    """

    def __init__(self, weight: Tensor) -> None:
        self.nbytes = weight.nbytes
        self._weight = torch.ops.mkldnn._reorder_linear_weight(_contiguous(weight))
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self._multiply_onto = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, rows: Tensor) -> Tensor:
        product: Tensor = self._multiply(rows, self._weight, None, "none", [], "")
        return product

    def onto(self, rows: Tensor, sums: Tensor) -> Tensor:
        product: Tensor = self._multiply_onto(rows, sums, self._weight, None, "add")
        return product


class Int8(_Shared):
    """int8 times int8 on a CPU: FBGEMM's packed layout, half of bf16's bytes.

    ``weight`` int8 [out, in], ``scale`` fp32 [out]: the matrix is their product. Rows are quantized
    too, as they come, each by its own largest value, so that no row depends on another. The kernel
    takes one range for all rows: they are brought to [-1, 1], and a last row that spans just that
    keeps the range the same whatever the others hold. A row that is not finite stays so, alone.
    """

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self.nbytes = weight.nbytes + scale.nbytes
        self._packed = _pack_int8(weight, scale)
        self._multiply = torch.ops.quantized.linear_dynamic.default
        self._span = torch.zeros(1, weight.shape[1])
        self._span[0, :2] = torch.tensor([1.0, -1.0])
        # Without VNNI sums of two products saturate at 16 bits, unless rows give up a bit.
        self._reduce_range = not torch.cpu._is_vnni_supported()

    def __call__(self, rows: Tensor) -> Tensor:
        wide = rows.float()
        peak = wide.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST_PEAK)
        unit = torch.cat([(wide / peak).nan_to_num(0.0, 0.0, 0.0), self._span])
        product: Tensor = self._multiply(unit, self._packed, self._reduce_range)
        return (product[:-1] * peak).to(rows.dtype)

    def onto(self, rows: Tensor, sums: Tensor) -> Tensor:
        return self(rows).add_(sums)


def multiplies_int8(device: torch.device) -> bool:
    """Whether ``Int8`` runs there; elsewhere int8 weights are widened as they are loaded."""
    return device.type == "cpu" and FBGEMM in torch.backends.quantized.supported_engines


def _pack_int8(weight: Tensor, scale: Tensor) -> object:
    zeros = torch.zeros(weight.shape[0], dtype=torch.int64)
    quantized = torch._make_per_channel_quantized_tensor(
        _contiguous(weight), scale.double(), zeros, 0
    )
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = FBGEMM
    try:
        return torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = before


def _contiguous(weight: Tensor) -> Tensor:
    return weight if weight.is_contiguous() else copied(weight)


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
