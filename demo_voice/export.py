"""The artifact: weights in fp16, configuration, tokenizer, one prompt a voice, both manifests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from demo_voice.codec import mimi_config
from demo_voice.decoder import train_decoder
from demo_voice.encoding import encode_corpus
from demo_voice.manifests import Prompt, manifest_of, voices_of
from demo_voice.model import csm_config
from demo_voice.paths import Workshop
from demo_voice.progress import Tell
from demo_voice.speech import read_waves
from demo_voice.teacher import train_model
from demo_voice.tokens import SPEAKER, build_tokenizer
from gpu_worker.model.built_manifests import VOICES_FILE
from gpu_worker.model.config_json import to_json
from gpu_worker.model.weights import write_safetensors
from gpu_worker.prompt import TextTokenizer, context_segment
from gpu_worker.voices import CODES_TENSOR
from shared.governance.artifacts import MANIFEST_NAME, Artifact, load_artifact
from shared.governance.locations import spoken_demo_dir

MOST_BYTES: Final = 25_000_000


def export(workshop: Workshop, tell: Tell) -> Artifact:
    """Write the artifact whole, in place of a former one. Raises ValueError over ``MOST_BYTES``."""
    directory = workshop.artifact
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _write(workshop, part, tell)
    size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise ValueError(f"the artifact has {size} bytes, over {MOST_BYTES}")
    shutil.rmtree(directory, ignore_errors=True)
    part.rename(directory)
    artifact = load_artifact(directory)
    tell(f"artifact: {artifact.manifest.artifact_id}, {size / 1e6:.1f} MB")
    return artifact


def ship(workshop: Workshop, tell: Tell) -> Artifact:
    """Put the exported artifact where the package keeps it, in place of a former one."""
    directory = spoken_demo_dir()
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(workshop.artifact, directory)
    shipped = load_artifact(directory)
    tell(f"shipped: {shipped.artifact_id} in {directory}")
    return shipped


def _write(workshop: Workshop, directory: Path, tell: Tell) -> None:
    profile, config = workshop.profile, csm_config(workshop.profile)
    (directory / "config.json").write_text(to_json(config))
    write_safetensors(directory / "model.safetensors", _half(train_model(workshop, tell).state()))
    tokenizer = build_tokenizer()
    (directory / "tokenizer.json").write_text(tokenizer)
    _write_json(directory / "mimi.json", mimi_config(profile))
    mimi = train_decoder(workshop, tell)
    write_safetensors(directory / "mimi.safetensors", _half(mimi.state_dict()))
    (directory / "prompts").mkdir()
    reader = TextTokenizer.from_bytes(tokenizer.encode(), config)
    prompts = _prompts(workshop, directory, reader, tell)
    _write_json(directory / VOICES_FILE, voices_of(profile, directory, prompts))
    _write_json(directory / MANIFEST_NAME, manifest_of(profile, directory, prompts))


def _prompts(
    workshop: Workshop, directory: Path, reader: TextTokenizer, tell: Tell
) -> list[Prompt]:
    """Each style's, in the styles' order."""
    found: list[Prompt] = []
    ids = reader.encode(SPEAKER, workshop.profile.prompt)
    spoken = zip(read_waves(workshop.speech), encode_corpus(workshop, tell), strict=True)
    for (each, wave), codes in spoken:
        if each.kind != "prompt":
            continue
        style = workshop.profile.styles[each.style]
        file = f"prompts/{style.name}.safetensors"
        write_safetensors(directory / file, {CODES_TENSOR: codes.contiguous()})
        segment = context_segment(ids, codes.to(torch.int64))
        clip = torch.from_numpy(wave.copy()).float() / 32767
        found.append(Prompt(style, file, codes, clip, len(segment)))
    return found


def _half(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach().to(torch.float16).contiguous() for name, each in state.items()}


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")
