"""Speech from an artifact's files equals that of transformers' CSM on the same weights.

Each size is compared over twenty prompts of fifty frames, one with and one without audio context;
the oracle speaks twenty prompts of one length as one batch, which needs no padding. With
``-m fullsize`` it speaks twenty prompts of twenty lengths one after another, for every size, layout
and context.
"""

from __future__ import annotations

import logging
import random
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi
from gpu_worker.model.checkpoint import load_checkpoint
from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, CsmConfig, TransformerConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.demo_text import TEXT_IDS
from gpu_worker.model.layouts import to_torchtune
from gpu_worker.model.rotary import rotary_frequencies
from gpu_worker.model.weights import parse_safetensors
from gpu_worker.prompt import Frames, audio_frames, text_frames
from gpu_worker.step import FrameStep
from shared.governance.artifacts import Artifact
from tests.gpu_worker.parity import (
    PROMPTED,
    TOLERANCE,
    compare,
    drawn,
    our_speech,
    prompts_of,
    torchtune_file,
    transformers_file,
)
from tests.gpu_worker.rebound import rebind
from tests.gpu_worker.tiny import TINY, oracle, random_mimi

_log = logging.getLogger(__name__)

PROMPTS, FRAMES = 20, 50
MOST_TIES = 3
WIDE = CsmConfig(
    backbone=replace(
        LLAMA_1B,
        hidden_size=96,
        num_layers=2,
        num_heads=6,
        num_kv_heads=6,
        head_dim=32,
        intermediate_size=160,
    ),
    depth=replace(
        LLAMA_100M,
        hidden_size=64,
        num_layers=3,
        num_heads=8,
        num_kv_heads=4,
        head_dim=8,
        intermediate_size=128,
    ),
)
# The tokenizer is the demo's.
CONFIGS = {
    name: replace(config, text_vocab_size=TEXT_IDS + 24, bos_id=TEXT_IDS, eos_id=TEXT_IDS + 1)
    for name, config in {"grouped": TINY, "wide": WIDE}.items()
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theirs(size: str) -> Any:
    return oracle(CONFIGS[size])


@pytest.fixture(scope="module")
def artifacts(
    size: str, theirs: Any, tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Artifact]:
    """The same weights in both published layouts, each as an artifact's file."""
    root, config = tmp_path_factory.mktemp("parity"), CONFIGS[size]
    state = theirs.state_dict()
    files = {
        "torchtune": torchtune_file(state, config),
        "transformers": transformers_file(theirs, root / "saved"),
    }
    return {
        layout: rebind(
            shutil.copytree(tiny_artifact.directory, root / layout),
            {"config.json": to_json(config).encode(), "model.safetensors": data},
        )
        for layout, data in files.items()
    }


def texts_of(artifact: Artifact, lengths: list[int]) -> list[str]:
    """A text for each length in ids, begin and end of text included, all different."""
    words = ["the", "quick", "answer", "says", "a", "short", "voice:", "7,", "or", "while"]
    source, tokenizer = random.Random(1), load_checkpoint(artifact).tokenizer
    texts: list[str] = []
    for length in lengths:
        text, count = "", 0
        while count != length or text in texts:
            text = text + " " + source.choice(words) if count < length else source.choice(words)
            count = len(tokenizer.encode(0, text))
        texts.append(text)
    return texts


def check(
    artifact: Artifact,
    theirs: Any,
    policy: str,
    lengths: list[int],
    batch: int,
    frames: int = FRAMES,
) -> None:
    """Equal codes but for a few ties, and all 32 heads' logits within the tolerance."""
    texts = texts_of(artifact, lengths)
    ours = our_speech(artifact, texts, policy, frames)
    ids, voice = prompts_of(artifact, texts, policy)
    assert [len(each) for each in ids] == lengths
    assert {each.codes.shape for each in ours} == {(frames, 32)}
    assert len({tuple(each.codes.flatten().tolist()) for each in ours}) == len(texts)

    ties, worst = [], 0.0
    for start in range(0, len(texts), batch):
        part = slice(start, start + batch)
        found, difference = compare(ours[part], theirs, ids[part], voice)
        ties += found
        worst = max(worst, difference)

    _log.info("%d prompts, largest logit difference %.1e, ties: %s", len(texts), worst, ties)
    assert worst < TOLERANCE
    assert len(ties) <= MOST_TIES


def test_greedy_speech_is_the_oracles(
    size: str, artifacts: dict[str, Artifact], theirs: Any
) -> None:
    """Twenty prompts of fifty frames: a chunk long without context, one id longer with it."""
    layout, policy, length = {
        "grouped": ("torchtune", "none", 32),
        "wide": ("transformers", PROMPTED, 33),
    }[size]
    check(artifacts[layout], theirs, policy, [length] * PROMPTS, PROMPTS)


def test_short_greedy_speech_is_the_oracles(
    size: str, artifacts: dict[str, Artifact], theirs: Any
) -> None:
    """The other two of layout and context, for five prompts."""
    layout, policy = {
        "grouped": ("transformers", PROMPTED),
        "wide": ("torchtune", "none"),
    }[size]
    check(artifacts[layout], theirs, policy, [17] * 5, 5, frames=12)


@pytest.mark.fullsize
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("layout", ["torchtune", "transformers"])
@pytest.mark.parametrize("policy", ["none", PROMPTED])
def test_greedy_speech_is_the_oracles_one_by_one(
    artifacts: dict[str, Artifact], theirs: Any, layout: str, policy: str
) -> None:
    """The same for twenty lengths and every pair of layout and context, unbatched."""
    lengths = [*range(6, 22), 31, 32, 33, 64]
    assert len(lengths) == PROMPTS
    check(artifacts[layout], theirs, policy, lengths, 1)


def test_both_layouts_give_one_model(artifacts: dict[str, Artifact]) -> None:
    """The two files load to the same bits, so what either speaks, the other speaks."""
    one, other = (load_checkpoint(each).state for each in artifacts.values())
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)

    spoken = [our_speech(each, ["Hello.", "Good."], PROMPTED, 4) for each in artifacts.values()]

    for first, second in zip(*spoken, strict=True):
        assert torch.equal(first.codes, second.codes)
        assert torch.equal(first.logits, second.logits)


# One thing at a time


def loaded(theirs: Any, config: CsmConfig, dtype: torch.dtype = torch.float32) -> FrameStep:
    """A step of two lanes over the oracle's weights, in the layout of sesame/csm-1b."""
    model = CsmModel(config, dtype=dtype)
    data = torch.frombuffer(
        bytearray(torchtune_file(theirs.state_dict(), config)), dtype=torch.uint8
    )
    model.load_state_dict(to_torchtune(parse_safetensors(data), config), strict=True)
    return FrameStep(model, StreamingMimi(random_mimi(), 2), 2, 64)


def greedy(step: FrameStep, lane: int) -> tuple[Tensor, Tensor]:
    """The next frame of ``lane``: codes [32] and the logits [32, vocabulary] that gave them."""
    active = torch.tensor([each == lane for each in range(step.lanes)])
    with drawn() as logits:
        codes = step.speak(active, 1).codes[lane].clone()
    return codes, torch.stack([each[lane] for each in logits])


def prefilled(step: FrameStep, frames: Frames, lane: int = 1) -> None:
    for start in range(0, len(frames), step.chunk):
        rows = slice(start, start + step.chunk)
        step.prefill(lane, frames.tokens[rows], frames.mask[rows], start)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_first_positions_of_the_depth_decoder(tied: bool) -> None:
    """Position 0 is the hidden state, position 1 codebook 0, position p codebook p - 1.

    The oracle reads all 31 at once, from its own table of embeddings where the tables are untied.
    """
    config = replace(TINY, tie_codebooks_embeddings=tied)
    theirs = oracle(config)
    tables = [
        theirs.backbone_model.embed_tokens.embed_audio_tokens.weight,
        theirs.depth_decoder.model.embed_tokens.weight,
    ]
    assert torch.equal(*tables) == tied
    with torch.inference_mode():
        step = loaded(theirs, config)
        step.hidden[1] = torch.randn(64, generator=torch.Generator().manual_seed(5))
        codes, logits = greedy(step, 1)

        expected = theirs.depth_decoder(
            input_ids=torch.cat([torch.zeros(1, dtype=torch.int64), codes[:31]])[None],
            backbone_last_hidden_state=step.hidden[1:2].clone(),
        ).logits[0]
        first = step.hidden[1] @ theirs.lm_head.weight.detach().T

    torch.testing.assert_close(logits[0], first, rtol=0, atol=TOLERANCE)
    assert expected.shape == logits[1:].shape == (31, 2051)
    torch.testing.assert_close(logits[1:], expected, rtol=0, atol=TOLERANCE)
    assert torch.equal(codes[1:], expected.argmax(dim=1))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_embedding_tables(tied: bool) -> None:
    """Audio in the context and generated frames are read from the backbone's own table."""
    config = replace(TINY, tie_codebooks_embeddings=tied)
    theirs = oracle(config)
    codes = torch.randint(2048, (32, 7), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        step = loaded(theirs, config)
        prefilled(step, audio_frames(codes))
        frame, _ = greedy(step, 1)
        step.feed(512)
        _, logits = greedy(step, 1)

        heard = torch.cat([codes.T, frame[None]])[None]
        expected = theirs(input_ids=heard).logits[0, -1]

    torch.testing.assert_close(logits[0], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("positions", [63, 64, 65, 511, 512, 513, 1100, 2047])
def test_rotary_scaling_far_out(positions: int) -> None:
    """Scaled by 32 or not at all, the state after many positions is the oracle's.

    A model that scaled differently would be found out: the two are far apart. The lengths are
    those around a prefill chunk and a block of the attention, and the last that can speak.
    """
    ids = torch.randint(280, (positions,), generator=torch.Generator().manual_seed(9))
    heads = []
    for factor in (32.0, 1.0):
        part = replace(TINY.backbone, rope_factor=factor)
        config = replace(TINY, backbone=part)
        theirs = oracle(config)
        with torch.inference_mode():
            step = loaded(theirs, config)
            prefilled(step, text_frames(ids.tolist()))
            _, logits = greedy(step, 1)
            expected = theirs(input_ids=ids[None], logits_to_keep=1).logits[0, -1]
        torch.testing.assert_close(logits[0], expected, rtol=0, atol=TOLERANCE)
        heads.append(logits[0])

    assert (heads[0] - heads[1]).abs().max() > 50 * TOLERANCE


@pytest.mark.parametrize("positions", [513, 2047])
def test_bfloat16_far_out(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in bfloat16 lose a few hundredths after many positions too: angles stay in fp32.

    Angles of the weights' own precision would be found out.
    """
    ids = torch.randint(280, (positions,), generator=torch.Generator().manual_seed(9))
    theirs = oracle(TINY)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(weight.bfloat16())

    def lost() -> float:
        step = loaded(theirs, TINY, torch.bfloat16)
        prefilled(step, text_frames(ids.tolist()))
        return float((greedy(step, 1)[1][0] - expected).norm() / expected.norm())

    def rounded(config: TransformerConfig, positions: int, device: torch.device) -> Tensor:
        steps = torch.arange(positions, dtype=torch.bfloat16, device=device)
        angles = torch.outer(steps, rotary_frequencies(config).bfloat16()).float()
        return torch.complex(angles.cos(), angles.sin()).unsqueeze(1)

    with torch.inference_mode():
        expected = theirs(input_ids=ids[None], logits_to_keep=1).logits[0, -1]
        ours = lost()
        monkeypatch.setattr("gpu_worker.model.csm.rotary_table", rounded)
        coarse = lost()

    assert ours < 0.06
    assert coarse > 2 * ours
