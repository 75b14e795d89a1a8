"""Tiny seeded models for the engine's tests, and transformers' CSM as the oracle beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpu_worker.codec import StreamingMimi, build_mimi
from gpu_worker.engine import Engine
from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, CsmConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.csm import CsmModel
from gpu_worker.prompt import Frames, Prompt, build_prompt, context_segment, text_frames
from gpu_worker.step import FrameStep
from shared.messages import CONTEXT_PROMPT

TINY = CsmConfig(
    backbone=replace(
        LLAMA_1B,
        hidden_size=64,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=96,
    ),
    depth=replace(
        LLAMA_100M,
        hidden_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=1,
        head_dim=12,
        intermediate_size=64,
    ),
    text_vocab_size=300,
    bos_id=290,
    eos_id=291,
)
VOICE = "test/voice"
LANES = 4
PROMPTED = CONTEXT_PROMPT


def random_model(
    config: CsmConfig = TINY, seed: int = 0, dtype: torch.dtype = torch.float32
) -> CsmModel:
    """Seeded weights of a scale that keeps logits apart."""
    generator = torch.Generator().manual_seed(seed)
    model = CsmModel(config, dtype=dtype)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.1 + 1.0 if parameter.ndim == 1 else noise * 0.15)
    return model


def random_mimi(seed: int = 0) -> Any:
    """The decoding half of a Mimi of moshi's modules, loud enough not to count as silence."""
    from moshi.models import loaders

    config = loaders._mimi_config | {
        "seanet": loaders._seanet_kwargs | {"dimension": 32, "n_filters": 4},
        "quantizer": loaders._quantizer_kwargs
        | {"dimension": 16, "input_dimension": 32, "output_dimension": 32},
        "transformer": loaders._transformer_kwargs
        | {"d_model": 32, "num_heads": 2, "num_layers": 2, "dim_feedforward": 64}
        | {"input_dimension": 32, "output_dimensions": [32], "layer_scale": 0.3},
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        state = loaders.get_mimi(None, config, num_codebooks=32).state_dict()
        for name, tensor in state.items():
            if name.endswith("embedding_sum"):
                tensor.normal_()
            elif name.endswith("cluster_usage"):
                tensor.fill_(1.0)
            elif "decoder.model" in name and name.endswith("weight"):
                tensor.mul_(1.5)
    return build_mimi(config, state)


class Tone:
    """A codec of constant samples: ``level`` of the frame's number since the lane's reset."""

    codebook_size = 2048

    def __init__(self, lanes: int, level: Callable[[int], int]) -> None:
        self._level = level
        self._count = [0] * lanes
        self.finite = torch.ones(lanes, dtype=torch.bool)

    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor:
        pcm = torch.zeros(len(self._count), 1920, dtype=torch.int16)
        for lane in active.nonzero().flatten().tolist():
            pcm[lane] = self._level(self._count[lane])
            self._count[lane] += 1
        return pcm

    def reset(self, lane: int) -> None:
        self._count[lane] = 0


def build(generation: Generation) -> Prompt:
    """Letters are text ids; the voice's context is three words and five frames of codes."""
    context = [] if generation.context_policy == "none" else [voice_context()]
    target = text_frames([TINY.bos_id, *(ord(each) for each in generation.text), TINY.eos_id])
    return build_prompt(
        context, target, max_frames=generation.max_frames, max_seq_len=TINY.max_seq_len
    )


def voice_context(frames: int = 5) -> Frames:
    codes = torch.randint(2048, (32, frames), generator=torch.Generator().manual_seed(7))
    return context_segment([TINY.bos_id, 11, 12, 13, TINY.eos_id], codes)


def make_engine(
    model: CsmModel | None = None,
    *,
    lanes: int = LANES,
    chunk: int = 8,
    codec: Any = None,
    prompts: Callable[[Generation], Prompt] = build,
    prepare: Callable[[FrameStep], None] = lambda _: None,
) -> tuple[Engine, FrameStep]:
    """An engine over random weights, with the one voice's context cached.

    ``prepare`` has the step before anything runs through it.
    """
    step = FrameStep(
        model or random_model(), codec or StreamingMimi(random_mimi(), lanes), lanes, chunk
    )
    prepare(step)
    context = voice_context()
    prefix = step.make_prefix(0, context.tokens, context.mask)
    return Engine(step, prompts, {VOICE: prefix}), step


def generation(key: str, text: str = "hello there", **changes: Any) -> Generation:
    base = Generation(
        key=key,
        text=text,
        speaker=0,
        voice_profile_id=VOICE,
        context_policy="none",
        max_frames=6,
        temperature=0.9,
        top_k=50,
        seed=1,
    )
    return replace(base, **changes)


class Log:
    """What an engine emitted, by key."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []

    def __call__(self, batch: list[Event]) -> None:
        self.batches.append(batch)

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    def frames(self, key: str) -> list[Frame]:
        return [e for e in self.events if isinstance(e, Frame) and e.key == key]

    def codes(self, key: str) -> list[bytes]:
        return [frame.codes for frame in self.frames(key)]

    def pcm(self, key: str) -> list[bytes]:
        return [frame.pcm for frame in self.frames(key)]

    def end(self, key: str) -> Ended:
        (end,) = (e for e in self.events if isinstance(e, Ended) and e.key == key)
        return end

    def released(self) -> list[str]:
        return [e.key for e in self.events if isinstance(e, Released)]


def run(engine: Engine, generations: Sequence[Generation] = (), limit: int = 2000) -> Log:
    """Submit all at once and tick until nothing is left to do."""
    log = Log()
    for each in generations:
        engine.submit(each)
    for _ in range(limit):
        if engine.is_idle:
            return log
        engine.tick(log)
    raise AssertionError("the engine did not come to an end")


def run_until(engine: Engine, log: Log, each: Generation, frames: int) -> None:
    """Submit it and let the engine turn until it has spoken so many frames."""
    engine.submit(each)
    while len(log.frames(each.key)) < frames:
        engine.tick(log)


def oracle(config: CsmConfig, seed: int = 0) -> Any:
    """transformers' CSM of the same shape with seeded weights; its own codec is shrunk.

    Untied tables differ.
    """
    from transformers import CsmConfig as HfConfig
    from transformers import CsmForConditionalGeneration

    document = json.loads(to_json(config))
    document["codec_config"] |= {"hidden_size": 16, "intermediate_size": 16, "num_filters": 4}
    document["codec_config"] |= {"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    document["codec_config"] |= {"num_key_value_heads": 2, "codebook_dim": 16}
    document["codec_config"] |= {"vector_quantization_hidden_dimension": 16}
    document["codec_config"] |= {"upsample_groups": 16}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CsmForConditionalGeneration(HfConfig(**document)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not name.startswith("codec_model"):
                    _randomise(parameter)
            # The oracle does not mask ids that the codec lacks: leave it no reason to choose one.
            model.lm_head.weight[config.codebook_size :] = 0.0
            model.depth_decoder.codebooks_head.weight[:, :, config.codebook_size :] = 0.0
    return model


def _randomise(parameter: Tensor) -> None:
    noise = torch.randn(parameter.shape)
    parameter.copy_(noise * 0.1 + 1.0 if parameter.ndim == 1 else noise * 0.15)
