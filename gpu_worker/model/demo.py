"""The demo artifact: CSM's architecture at toy size, on seeded weights. It speaks noise.

Same files, same loader and same code path as CSM-1B, so that the whole system runs on a laptop.
The weights are integers of a hash stream times powers of two: exact in bfloat16, hence the same
bytes, digest and artifact id on every machine. What floats decide (the codes of the voice prompt)
differs between machines and is only recorded in the manifests.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_worker.codec import build_mimi
from gpu_worker.model.built_manifests import VOICES_FILE
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.config_json import to_json
from gpu_worker.model.demo_manifests import PROMPT_FILE, SPEAKER, demo_manifest, demo_voices
from gpu_worker.model.demo_text import TEXT_IDS, TRANSCRIPT, train_tokenizer
from gpu_worker.model.demo_weights import (
    SIZES,
    DemoSize,
    csm_weights,
    mimi_weights,
    reduced_mimi_config,
    synthetic_clip,
)
from gpu_worker.model.weights import write_safetensors
from gpu_worker.prompt import TextTokenizer, context_segment
from gpu_worker.voices import CODES_TENSOR
from shared.digests import file_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact


def build_demo(directory: Path, size: str = "demo") -> Artifact:
    """The demo artifact in ``directory``, built if it is not there whole.

    ``size`` is ``demo`` or ``tiny``. The directory appears at once and complete; processes that
    build the same one at a time wait for each other. Raises FileExistsError when something is
    there that is no demo artifact, OSError when it can't be written.
    """
    recipe = SIZES[size]
    directory = directory.absolute()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _lock(directory.parent / f".{directory.name}.lock"):
        if built := _whole(directory, recipe):
            return built
        _check_replaceable(directory)
        _sweep(directory)
        work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _build(work, recipe)
            work.chmod(0o755)
            if directory.exists():
                shutil.rmtree(directory)
            work.rename(directory)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return load_artifact(directory)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system releases it if that process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(directory: Path) -> None:
    """Removes what a builder that was killed left; under the lock nobody else is building."""
    for left in directory.parent.glob(f".{directory.name}.*/"):
        shutil.rmtree(left, ignore_errors=True)


def _whole(directory: Path, recipe: DemoSize) -> Artifact | None:
    """The artifact if this recipe built it and every file still has its digest."""
    try:
        artifact = load_artifact(directory)
        if artifact.manifest.model_version != recipe.version:
            return None
        for name, entry in artifact.manifest.files.items():
            if file_sha256(directory / name) != entry.sha256:
                return None
    except (SpeechError, OSError):
        return None
    return artifact


def _check_replaceable(directory: Path) -> None:
    """Raises FileExistsError unless there is nothing, or a demo that went bad or out of date."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    try:
        model_id = json.loads((directory / MANIFEST_NAME).read_bytes())["model_id"]
    except (OSError, ValueError, KeyError, TypeError):
        model_id = None
    if model_id not in {recipe.model_id for recipe in SIZES.values()}:
        raise FileExistsError(f"{directory} holds something else than a demo artifact")


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
