"""What is measured: an artifact of seeded weights, built once and kept in the user's cache.

    tiny, demo    the demo artifact at its two sizes
    full          CSM-1B's dimensions and Mimi's own, in bfloat16, laid out as ``model.safetensors``
                  of sesame/csm-1b is; some 3.5 GB on disk

Weights that were never trained cost what trained ones cost. They say nothing about speech.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from gpu_worker.codec import default_mimi_config
from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, CsmConfig
from gpu_worker.model.demo import build_demo, write_artifact
from gpu_worker.model.demo_sizes import SIZES, DemoSize
from gpu_worker.model.demo_text import TEXT_IDS
from gpu_worker.model.demo_weights import synthetic_clip
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, load_artifact
from shared.wav import CODEBOOKS

FULL: Final = "full"
PROMPT_FRAMES: Final = 400
"""32 s of a voice's own speech; with its transcript some 420 positions of context."""


def recipe_for(size: str) -> DemoSize:
    """Raises KeyError for a size that there is none of."""
    if size != FULL:
        return SIZES[size]
    return DemoSize(
        model_id="psionic-bench/csm-1b-size",
        version="csm_1b_size_seeded_v1",
        backbone=LLAMA_1B,
        depth=LLAMA_100M,
        mimi_filters=64,
        mimi_dim=512,
        codebook_dim=256,
        prompt_frames=PROMPT_FRAMES,
    )


def material(size: str, cache: Path) -> tuple[Artifact, bool]:
    """The artifact of that size below ``cache``, and whether it had to be built.

    Its files are not hashed here: whoever loads them checks them. Raises OSError when there is no
    room for it.
    """
    recipe, directory = recipe_for(size), (cache / "benchmarks" / f"csm-{size}").absolute()
    if found := _built(directory, recipe):
        return found, False
    directory.parent.mkdir(parents=True, exist_ok=True)
    if size != FULL:
        return build_demo(directory, size), True
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _build_full(work, recipe)
        shutil.rmtree(directory, ignore_errors=True)
        work.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return load_artifact(directory), True


def _built(directory: Path, recipe: DemoSize) -> Artifact | None:
    try:
        artifact = load_artifact(directory)
    except SpeechError:
        return None
    return artifact if artifact.manifest.model_version == recipe.version else None


def _build_full(directory: Path, recipe: DemoSize) -> None:
    # The demo's tokenizer, a corner of Llama's vocabulary: ids cost the same wherever they lie.
    config = replace(CsmConfig.csm_1b(), bos_id=TEXT_IDS, eos_id=TEXT_IDS + 1)
    generator = torch.Generator().manual_seed(1)
    shape = (CODEBOOKS, recipe.prompt_frames)
    codes = torch.randint(config.codebook_size, shape, generator=generator).to(torch.int16)
    write_artifact(directory, recipe, config, default_mimi_config(), synthetic_clip(1), codes)
