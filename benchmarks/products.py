"""Three ways to multiply by the depth decoder's matrices on a CPU, taking turns in one run.

    python -m benchmarks.products --threads 1

bfloat16 in oneDNN's layout, int8 weights with int8 rows (``gpu_worker.model.products.Int8``, what a
quantized artifact runs on), and torch's own int8 weights with bfloat16 rows. CSM-1B's widths, four
layers, so that weights come from memory as in a step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from benchmarks.records import Spread
from benchmarks.timing import repeated, take_turns
from gpu_worker.model.config import LLAMA_100M
from gpu_worker.model.products import Int8, Reordered
from gpu_worker.model.quantize import quantized

ROWS: Final = (1, 2, 4, 8)
ROUNDS: Final = 9
LAYERS: Final = 4

Multiply = Callable[[Tensor], Tensor]


def matrices() -> list[Tensor]:
    """What one layer multiplies by, four times over, fp32 [out, in]."""
    c, generator = LLAMA_100M, torch.Generator().manual_seed(0)
    projected = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim
    shapes = [
        (projected, c.hidden_size),
        (c.hidden_size, c.num_heads * c.head_dim),
        (2 * c.intermediate_size, c.hidden_size),
        (c.hidden_size, c.intermediate_size),
    ]
    return [torch.randn(shape, generator=generator) * 0.02 for shape in LAYERS * shapes]


def weight_only(weight: Tensor) -> Multiply:
    """int8 weights, bfloat16 rows: torch's packed kernel."""
    whole, scale = quantized(weight)
    wide_scale = scale.bfloat16()
    return lambda rows: torch._weight_int8pack_mm(rows, whole, wide_scale)


def compare(weights: list[Tensor], rows: int, rounds: int) -> dict[str, Spread]:
    """Seconds to multiply ``rows`` rows by all of the matrices, each way."""
    ways: dict[str, list[Multiply]] = {
        "bfloat16": [Reordered(weight.bfloat16()) for weight in weights],
        "int8, rows int8": [Int8(*quantized(weight)) for weight in weights],
        "int8, rows bfloat16": [weight_only(weight) for weight in weights],
    }
    given = [torch.randn(rows, weight.shape[1]).bfloat16() for weight in weights]

    def work(way: list[Multiply]) -> Callable[[], None]:
        def multiply() -> None:
            for one, each in zip(way, given, strict=True):
                one(each)

        return multiply

    turns = {name: repeated(work(way), 1) for name, way in ways.items()}
    take_turns(turns, 2)
    return {name: Spread.of(samples) for name, samples in take_turns(turns, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.products", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    weights = matrices()
    with torch.inference_mode():
        for rows in ROWS:
            found = compare(weights, rows, ROUNDS)
            times = (f"{name} {each.median * 1e3:.1f} ms" for name, each in found.items())
            print(f"{rows} rows: {', '.join(times)}", flush=True)


if __name__ == "__main__":
    main()
