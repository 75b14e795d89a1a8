"""Our speech beside that of transformers' ``CsmForConditionalGeneration`` on the same weights.

Ours goes the whole way of the product: an artifact's files through the loader, text through the
tokenizer, lanes through the engine. Only the logits are taken on their way into the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from gpu_worker.backend import CPU
from gpu_worker.generation import Event, Frame, Generation
from gpu_worker.loading import load
from gpu_worker.model.checkpoint import load_checkpoint
from gpu_worker.model.config import CsmConfig, TransformerConfig
from gpu_worker.sampling import Draw
from gpu_worker.step import FrameStep
from gpu_worker.voices import VoicePrompt
from shared.governance.artifacts import Artifact
from shared.settings import WorkerSettings

TOLERANCE: Final = 1e-4
"""Of a logit, fp32 against fp32: another order of sums, a hundred layers deep."""
PROMPTED: Final = "prompt_profile_only"


def torchtune_file(theirs: Mapping[str, Tensor], config: CsmConfig) -> bytes:
    """transformers' weights as the bytes of a file in the layout of sesame/csm-1b.

    Written from the published names alone, apart from the loader's own tables.
    """
    ours = {
        "text_embeddings.weight": theirs["embed_text_tokens.weight"],
        "audio_embeddings.weight": theirs["backbone_model.embed_tokens.embed_audio_tokens.weight"],
        "projection.weight": theirs["depth_decoder.model.inputs_embeds_projector.weight"],
        "codebook0_head.weight": theirs["lm_head.weight"],
        "audio_head": theirs["depth_decoder.codebooks_head.weight"],
    }
    if not config.tie_codebooks_embeddings:
        ours["decoder_embeddings.weight"] = theirs["depth_decoder.model.embed_tokens.weight"]
    for name, source, part in (
        ("backbone", "backbone_model", config.backbone),
        ("decoder", "depth_decoder.model", config.depth),
    ):
        ours[f"{name}.norm.scale"] = theirs[f"{source}.norm.weight"]
        for index in range(part.num_layers):
            layer, block = f"{name}.layers.{index}", f"{source}.layers.{index}"
            attention, mlp = f"{block}.self_attn", f"{block}.mlp"
            ours |= {
                f"{layer}.attn.q_proj.weight": _pairs(theirs[f"{attention}.q_proj.weight"], part),
                f"{layer}.attn.k_proj.weight": _pairs(theirs[f"{attention}.k_proj.weight"], part),
                f"{layer}.attn.v_proj.weight": theirs[f"{attention}.v_proj.weight"],
                f"{layer}.attn.output_proj.weight": theirs[f"{attention}.o_proj.weight"],
                f"{layer}.mlp.w1.weight": theirs[f"{mlp}.gate_proj.weight"],
                f"{layer}.mlp.w2.weight": theirs[f"{mlp}.down_proj.weight"],
                f"{layer}.mlp.w3.weight": theirs[f"{mlp}.up_proj.weight"],
                f"{layer}.sa_norm.scale": theirs[f"{block}.input_layernorm.weight"],
                f"{layer}.mlp_norm.scale": theirs[f"{block}.post_attention_layernorm.weight"],
            }
    data: bytes = save({name: tensor.contiguous() for name, tensor in ours.items()})
    return data


def _pairs(weight: Tensor, part: TransformerConfig) -> Tensor:
    """Rows i and i + head_dim / 2 of each head become rows 2i and 2i + 1."""
    out = torch.empty_like(weight)
    half = part.head_dim // 2
    for row in range(weight.shape[0]):
        head, within = divmod(row, part.head_dim)
        pair, second = within % half, within // half
        out[head * part.head_dim + 2 * pair + second] = weight[row]
    return out


def transformers_file(model: Any, directory: Path) -> bytes:
    """The file that transformers itself saves: its own names, the codec's weights among them."""
    model.save_pretrained(directory)
    return (directory / "model.safetensors").read_bytes()


@dataclass(frozen=True)
class Spoken:
    """``codes`` int64 [frames, 32], ``logits`` fp32 [frames, 32, vocabulary]."""

    codes: Tensor
    logits: Tensor


@contextmanager
def drawn() -> Iterator[list[Tensor]]:
    """The logits of every draw inside the block, [lanes, vocabulary] each, in order."""
    seen: list[Tensor] = []
    draw = Draw.__call__

    def watched(self: Draw, codebook: int, logits: Tensor) -> Tensor:
        seen.append(logits.float().clone())
        return draw(self, codebook, logits)

    with patch.object(Draw, "__call__", watched):
        yield seen


def our_speech(artifact: Artifact, texts: Sequence[str], policy: str, frames: int) -> list[Spoken]:
    """Greedy speech of all texts at once, a lane each, by an engine loaded from the artifact.

    Its step runs as Python, whose draws can be watched; a script's are the same to the bit.
    """
    env = {"PSIONIC_CSM_LANES": str(len(texts)), "PSIONIC_CSM_TORCH_THREADS": "1"}
    with patch.object(FrameStep, "script"):
        loaded = load(WorkerSettings.from_env(env), artifact.directory, CPU)
    voice = artifact.voices.default
    with loaded.mode(), drawn() as logits:
        for index, text in enumerate(texts):
            request = Generation(
                key=str(index),
                text=text,
                speaker=voice.speaker,
                voice_profile_id=voice.profile_id,
                context_policy=policy,
                max_frames=frames,
                temperature=0.0,
                top_k=1,
                seed=0,
            )
            loaded.engine.submit(request)
        rows: list[list[tuple[Tensor, Tensor]]] = [[] for _ in texts]

        def take(events: list[Event]) -> None:
            """A fresh engine fills its lanes in order, so a key is its lane's number."""
            step = torch.stack(logits, dim=1) if logits else torch.empty(0)
            logits.clear()
            for event in events:
                if isinstance(event, Frame):
                    codes = np.frombuffer(event.codes, "<u2").astype(np.int64)
                    rows[int(event.key)].append((torch.from_numpy(codes), step[int(event.key)]))

        while not loaded.engine.is_idle:
            loaded.engine.tick(take)
    return [Spoken(*(torch.stack(part) for part in zip(*row, strict=True))) for row in rows]


def prompts_of(
    artifact: Artifact, texts: Sequence[str], policy: str
) -> tuple[list[list[int]], VoicePrompt | None]:
    """The texts' ids and the voice's prompt, for the oracle."""
    checkpoint, voice = load_checkpoint(artifact), artifact.voices.default
    ids = [checkpoint.tokenizer.encode(voice.speaker, text) for text in texts]
    return ids, checkpoint.voices[voice.profile_id] if policy == PROMPTED else None


Head = Callable[[int, int, Tensor], None]


def their_speech(
    theirs: Any, ids: Sequence[Sequence[int]], voice: VoicePrompt | None, frames: int, head: Head
) -> Tensor:
    """transformers' greedy codes [prompts, frames, 32] for prompts of one length, no padding.

    ``head`` gets every head's logits as they come: frame, codebook, [prompts, vocabulary].
    """
    count = 0

    def heard(_: Any, __: Any, output: Tensor) -> None:
        nonlocal count
        head(count // 32, count % 32, output[:, -1].float())
        count += 1

    hooks = [
        module.register_forward_hook(heard)
        for module in (theirs.lm_head, theirs.depth_decoder.codebooks_head)
    ]
    try:
        with _as_codec(theirs, voice), torch.inference_mode():
            codes: Tensor = theirs.generate(
                **_inputs(theirs, ids, voice),
                max_new_tokens=frames,
                do_sample=False,
                depth_decoder_do_sample=False,
            )
    finally:
        for hook in hooks:
            hook.remove()
    assert count == 32 * frames
    return codes


def _inputs(theirs: Any, ids: Sequence[Sequence[int]], voice: VoicePrompt | None) -> Any:
    if voice is None:
        return {"input_ids": torch.tensor(ids)}
    length = voice.codes.shape[1]
    said = [int(row[32]) for row in voice.segment.tokens[: len(voice.segment) - length - 1]]
    audio, end = theirs.config.audio_token_id, theirs.config.audio_eos_token_id
    tokens = torch.tensor([[*said, *[audio] * length, end, *each] for each in ids])
    return {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),  # audio and padding share an id
        "input_values": torch.zeros(len(ids), 1, 1920 * length),
        "input_values_cutoffs": torch.full((len(ids), 1), 1920 * length),
    }


@contextmanager
def _as_codec(theirs: Any, voice: VoicePrompt | None) -> Iterator[None]:
    """Lets the oracle hear the voice's codes instead of encoding a clip with another codec."""
    if voice is None:
        yield
        return
    codes = voice.codes
    with (
        patch.object(
            theirs.codec_model, "encode", lambda _: SimpleNamespace(audio_codes=codes[None])
        ),
        patch.object(
            theirs.codec_model,
            "get_audio_codes_mask",
            lambda mask: torch.ones(mask.shape[0], codes.shape[1], dtype=torch.bool),
        ),
    ):
        yield


@dataclass(frozen=True)
class Tie:
    """The oracle's best two logits are ``gap`` apart, and the two implementations chose apart."""

    prompt: int
    frame: int
    codebook: int
    gap: float


def compare(
    ours: Sequence[Spoken], theirs: Any, ids: Sequence[Sequence[int]], voice: VoicePrompt | None
) -> tuple[list[Tie], float]:
    """The ties, and the largest difference of any logit up to the end or the tie of its prompt.

    Raises AssertionError at the first code that differs where the oracle was not in doubt.
    """
    frames = ours[0].codes.shape[0]
    mine = torch.stack([each.logits for each in ours])
    differences = torch.empty(len(ours), frames, 32)
    gaps = torch.empty(len(ours), frames, 32)

    def head(frame: int, codebook: int, logits: Tensor) -> None:
        best = logits.topk(2, dim=1).values
        gaps[:, frame, codebook] = best[:, 0] - best[:, 1]
        difference = (mine[:, frame, codebook] - logits).abs().amax(dim=1)
        differences[:, frame, codebook] = difference

    codes = their_speech(theirs, ids, voice, frames, head)
    ties, worst = [], 0.0
    for prompt, each in enumerate(ours):
        compared = differences[prompt].flatten()
        apart = (each.codes != codes[prompt]).flatten().nonzero()
        if len(apart):
            place = int(apart[0])
            gap = float(gaps[prompt].flatten()[place])
            tie = Tie(prompt, *divmod(place, 32), gap)
            assert gap < 2 * TOLERANCE, tie
            ties.append(tie)
            compared = compared[: place + 1]
        worst = max(worst, float(compared.max()))
    return ties, worst
