"""The demo artifact: CSM's architecture at toy size, on seeded weights. It speaks noise.

Same files, same loader and same code path as CSM-1B, so that the whole system runs on a laptop.
The weights are integers of a hash stream times powers of two: exact in bfloat16, hence the same
bytes, digest and artifact id on every machine. What floats decide (the codes of the voice prompt)
differs between machines and is only recorded in the manifests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_worker.codec import build_mimi
from gpu_worker.model.built_manifests import VOICES_FILE
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.demo_manifests import PROMPT_FILE, SPEAKER, demo_manifest, demo_voices
from gpu_worker.model.demo_sizes import SIZES, DemoSize
from gpu_worker.model.demo_text import TEXT_IDS, TRANSCRIPT, train_tokenizer
from gpu_worker.model.demo_weights import (
    csm_weights,
    mimi_weights,
    reduced_mimi_config,
    synthetic_clip,
)
from gpu_worker.model.weights import write_safetensors
from gpu_worker.prompt import TextTokenizer, context_segment
from gpu_worker.voices import CODES_TENSOR
from shared.governance.artifacts import MANIFEST_NAME, Artifact
from shared.governance.placing import place


def build_demo(directory: Path, size: str = "demo") -> Artifact:
    """The demo artifact in ``directory``, built if it is not there whole.

    ``size`` is ``demo`` or ``tiny``. Raises as ``shared.governance.placing.place`` does.
    """
    recipe = SIZES[size]

    def is_wanted(found: Artifact) -> bool:
        return found.manifest.model_version == recipe.version

    return place(directory, is_wanted, lambda empty: _build(empty, recipe))


def _build(directory: Path, recipe: DemoSize) -> None:
    config = CsmConfig(
        backbone=recipe.backbone,
        depth=recipe.depth,
        text_vocab_size=TEXT_IDS + 24,
        bos_id=TEXT_IDS,
        eos_id=TEXT_IDS + 1,
    )
    clip = synthetic_clip(recipe.prompt_frames)
    write_artifact(directory, recipe, config, reduced_mimi_config(recipe), clip)


def write_artifact(
    directory: Path,
    recipe: DemoSize,
    config: CsmConfig,
    mimi_config: dict[str, Any],
    clip: Tensor,
    codes: Tensor | None = None,
) -> None:
    """All files of an artifact of seeded weights, into an empty directory.

    ``codes`` int16 [32, frames] are the voice's prompt; without them it is ``clip``, encoded.
    """
    (directory / "config.json").write_text(to_json(config))
    write_safetensors(directory / "model.safetensors", csm_weights(config))
    tokenizer_json = train_tokenizer()
    (directory / "tokenizer.json").write_text(tokenizer_json)
    tokenizer = TextTokenizer.from_bytes(tokenizer_json.encode(), config)

    _write_json(directory / "mimi.json", mimi_config)
    weights = mimi_weights(mimi_config)
    write_safetensors(directory / "mimi.safetensors", weights)
    if codes is None:
        mimi = build_mimi(mimi_config, weights, decode_only=False)
        with torch.no_grad():
            codes = mimi.encode(clip[None, None])[0].to(torch.int16).contiguous()
    (directory / PROMPT_FILE).parent.mkdir()
    write_safetensors(directory / PROMPT_FILE, {CODES_TENSOR: codes})

    segment = context_segment(tokenizer.encode(SPEAKER, TRANSCRIPT), codes.to(torch.int64))
    _write_json(directory / VOICES_FILE, demo_voices(recipe, directory, clip, codes, len(segment)))
    _write_json(directory / MANIFEST_NAME, demo_manifest(recipe, directory))


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")
