"""transformers' CSM on our weights, timed inside its own generate loop.

It makes codes and no audio, so its frames cost less than ours by what Mimi takes.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.rig import TEMPERATURE, TOP_K
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.layouts import to_torchtune

_SMALL_CODEC: Final = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_filters": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "upsample_groups": 16,
}
"""Its Mimi is never called here; so large is the smallest that it can be built with."""


def is_installed() -> bool:
    return importlib.util.find_spec("transformers") is not None


def build_oracle(config: CsmConfig, state: dict[str, Tensor], dtype: torch.dtype) -> Any:
    """``CsmForConditionalGeneration`` with ``state``'s weights (torchtune's names). Empties it."""
    from transformers import CsmConfig as TheirConfig
    from transformers import CsmForConditionalGeneration, logging
    from transformers.modeling_utils import no_init_weights

    logging.set_verbosity_error()
    document = json.loads(to_json(config))
    document["codec_config"] |= _SMALL_CODEC
    with no_init_weights():
        oracle = CsmForConditionalGeneration._from_config(
            TheirConfig(**document), dtype=dtype, attn_implementation="sdpa"
        ).eval()
    oracle.tie_weights()  # left out with the initial values
    fill(oracle, state, config)
    return oracle


@torch.no_grad()
def fill(oracle: Any, state: dict[str, Tensor], config: CsmConfig) -> None:
    """Move ``state`` into its parameters, through views that have torchtune's names.

    One by one, so that the weights are hardly ever there twice.
    """
    parameters = {
        name: tensor for name, tensor in oracle.named_parameters() if "codec_model" not in name
    }
    views = to_torchtune(parameters, config)
    for name, model, part in (
        ("backbone", oracle.backbone_model, config.backbone),
        ("decoder", oracle.depth_decoder.model, config.depth),
    ):
        for index, layer in enumerate(model.layers):
            for kind, heads in (("q", part.num_heads), ("k", part.num_kv_heads)):
                theirs = getattr(layer.self_attn, f"{kind}_proj").weight
                ours = f"{name}.layers.{index}.attn.{kind}_proj.weight"
                views[ours] = _split_halves(theirs, heads)
    for name in list(state):
        views[name].copy_(state.pop(name).view(views[name].shape))


def _split_halves(weight: Tensor, heads: int) -> Tensor:
    """A view of a query or key projection, [heads, pairs, 2, hidden], in torchtune's order."""
    rows, hidden = weight.shape
    return weight.data.view(heads, 2, rows // heads // 2, hidden).transpose(1, 2)


class FrameClock:
    """A transformers streamer that notes when each frame was made."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def put(self, value: Tensor) -> None:
        self.moments.append(time.perf_counter())

    def end(self) -> None:
        return

    @property
    def frames_s(self) -> list[float]:
        """Seconds of each frame but the first, which includes the prefill.

        The prompt is put first, then frame after frame.
        """
        moments = self.moments[1:]
        return [later - earlier for earlier, later in itertools.pairwise(moments)]


def frames(oracle: Any, ids: Sequence[int], batch: int, count: int) -> list[float]:
    """Seconds of each of ``count`` frames of one call of ``generate`` on ``batch`` equal texts."""
    clock = FrameClock()
    generate(oracle, ids, batch, count + 1, streamer=clock)
    return clock.frames_s


def generate(oracle: Any, ids: Sequence[int], batch: int, count: int, **options: Any) -> Tensor:
    """Sampled as our lanes are. Returns codes [batch, frames, 32]."""
    sampling = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K} | options
    streamer = sampling.pop("streamer", None)
    depth = {f"depth_decoder_{name}": value for name, value in sampling.items()}
    tokens = torch.tensor([list(ids)] * batch)
    codes: Tensor = oracle.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=count,
        streamer=streamer,
        **sampling,
        **depth,
    )
    return codes
