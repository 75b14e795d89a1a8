"""Products by matrices in different layouts."""

from __future__ import annotations

import pytest
import torch

from gpu_worker.model.csm import CsmModel
from gpu_worker.model.layers import Multiplier
from gpu_worker.model.products import REORDERED_FROM_BYTES, Plain, Product, Reordered, product_of
from tests.gpu_worker.tiny import TINY, random_model

DTYPES = [torch.float32, torch.bfloat16]


def matrix(dtype: torch.dtype, outputs: int = 520, inputs: int = 600) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1)).to(dtype) * 0.1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 7, 32])
def test_a_layout_changes_only_the_rounding(dtype: torch.dtype, rows: int) -> None:
    """Both layouts give the product of the dense matrix, added to another or not, to rounding."""
    weight, given = matrix(dtype), torch.randn(rows, 600).to(dtype)
    sums = torch.randn(rows, 520).to(dtype)
    expected = given.double() @ weight.double().T

    for product in (Plain(weight), Reordered(weight)):
        tolerance = 1e-5 if dtype == torch.float32 else 0.02
        for found, wanted in (
            (product(given), expected),
            (product.onto(given, sums), expected + sums),
        ):
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 16, 32])
@pytest.mark.parametrize("make", [Plain, Reordered])
def test_a_row_does_not_know_its_place(dtype: torch.dtype, rows: int, make: type[Product]) -> None:
    """At a fixed number of rows each has the same bits in any place and beside any others."""
    product = make(matrix(dtype))  # type: ignore[call-arg]
    given = torch.randn(rows, 600).to(dtype)
    sums = torch.randn(rows, 520).to(dtype)
    straight, added = product(given)[0], product.onto(given, sums)[0]

    for shift in range(rows):
        others, other_sums = torch.randn(rows, 600).to(dtype), torch.randn(rows, 520).to(dtype)
        others[shift], other_sums[shift] = given[0], sums[0]
        assert torch.equal(product(others)[shift], straight)
        assert torch.equal(product.onto(others, other_sums)[shift], added)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_layout_serves_any_number_of_rows(dtype: torch.dtype) -> None:
    """A matrix keeps no second copy for a prefill's many rows, and none of its dense form."""
    weight = matrix(dtype)
    product = Reordered(weight)
    weight.zero_()

    assert product.nbytes == 520 * 600 * dtype.itemsize
    assert product(torch.ones(1, 600, dtype=dtype)).any()
    assert product(torch.ones(64, 600, dtype=dtype)).any()


def test_small_matrices_stay_as_they_are() -> None:
    """Reordering is for matrices that a step reads from memory; elsewhere than on a CPU, never."""
    outputs = REORDERED_FROM_BYTES // 4 // 256

    assert isinstance(product_of(torch.zeros(outputs, 256)), Reordered)
    assert isinstance(product_of(torch.zeros(outputs - 1, 256)), Plain)
    assert isinstance(product_of(torch.zeros(outputs, 256, device="meta")), Plain)
    assert isinstance(product_of(torch.zeros(outputs, 256, dtype=torch.float64)), Plain)


@pytest.mark.parametrize("make", [Plain, Reordered])
def test_a_settled_model_holds_each_matrix_once(make: type[Product]) -> None:
    """Filled from a checkpoint it takes every tensor, has all its bytes and keeps no dense one."""
    dense = random_model()
    state = {name: tensor.clone() for name, tensor in dense.state_dict().items()}

    model = CsmModel(TINY, allocate=False)
    model.fill(state, make)

    assert state == {}
    assert model.nbytes == dense.nbytes
    assert {name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()} == {"scale", "weight"}
    assert {name for name, _ in model.named_parameters() if name.endswith("weight")} == {
        "text_embeddings.weight",
        "audio_embeddings.weight",
    }
    products = [each.product for each in model.modules() if isinstance(each, Multiplier)]
    assert all(isinstance(product, make) for product in products)


def test_a_filled_model_is_the_one_that_was_saved() -> None:
    """Whatever the layout, hidden states and logits are those of the dense model, to rounding."""
    dense, model = random_model(), CsmModel(TINY, allocate=False)
    dense.settle(Plain)
    model.fill(dict(random_model().state_dict()), Reordered)
    rows = torch.randn(3, TINY.backbone.hidden_size)
    depth = torch.randn(3, TINY.depth.hidden_size)

    pairs = [(model.settled.projection, dense.settled.projection, rows)]
    pairs += zip(model.settled.heads, dense.settled.heads, [rows, *[depth] * 31], strict=True)
    for found, expected, given in pairs:
        torch.testing.assert_close(found(given), expected(given))
