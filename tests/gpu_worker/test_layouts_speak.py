"""Speech over reordered matrices: as blind to company, lanes and replays as over dense ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_worker.engine import Engine
from gpu_worker.model.products import Reordered
from tests.gpu_worker.tiny import LANES, Log, generation, make_engine, random_model, run

pytestmark = pytest.mark.usefixtures("in_inference_mode")

REQUESTS = [
    generation("a", max_frames=7, seed=3),
    generation("b", "of another length", max_frames=9, seed=4, top_k=1),
    generation("c", "!", context_policy="prompt_profile_only", max_frames=5, top_k=200),
    generation("d", "joins late", max_frames=6, seed=8),
]


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"], scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    with torch.inference_mode():
        model = random_model(dtype=request.param)
        model.settle(Reordered)
        return make_engine(model)[0]


def speech(log: Log, key: str) -> tuple[list[bytes], list[bytes]]:
    return log.codes(key), log.pcm(key)


def test_company_and_lanes_change_nothing(engine: Engine) -> None:
    """Each request has the same bits alone and in any order of arrival among others."""
    alone = {each.key: speech(run(engine, [each]), each.key) for each in REQUESTS}

    for turn in range(LANES):
        log = run(engine, REQUESTS[turn:] + REQUESTS[:turn])
        for each in REQUESTS:
            assert speech(log, each.key) == alone[each.key]


@pytest.mark.parametrize("delivered", [1, 4, 8])
def test_a_replay_goes_on_as_if_undisturbed(engine: Engine, delivered: int) -> None:
    """Codes replayed in company lead to the very bits that would have followed."""
    request = REQUESTS[1]
    codes, pcm = speech(run(engine, [request]), request.key)

    again = replace(request, replay=tuple(codes[:delivered]))
    log = run(engine, [REQUESTS[0], again, REQUESTS[2]])

    assert speech(log, request.key) == (codes[delivered:], pcm[delivered:])
