"""Loads what an artifact's manifest names: each file read once, hashed as it is read.

Every refusal is a SpeechError with the code that an operator acts on:

    csm_config_unavailable      csm_config_invalid          config.json
    llama_tokenizer_unavailable                             tokenizer.json, missing or another
    csm_model_unavailable       csm_runtime_load_failed     the weights
    mimi_model_unavailable      csm_runtime_load_failed     the codec
    voice_profile_source_unavailable, voice_profile_digest_mismatch
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import torch
from torch import Tensor

from gpu_worker.codec import build_mimi, default_mimi_config
from gpu_worker.codec_layout import settle_mimi
from gpu_worker.model.config import CsmConfig
from gpu_worker.model.config_json import from_json
from gpu_worker.model.layouts import SCALE, to_torchtune, widen
from gpu_worker.model.products import multiplies_int8
from gpu_worker.model.weights import BadFile, copied, read_safetensors, read_verified
from gpu_worker.prompt import TextTokenizer
from gpu_worker.voices import VoicePrompt, load_voice_prompts
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact
from shared.governance.manifests import Role

Content = TypeVar("Content", covariant=True)

LOAD_FAILED: Final = "csm_runtime_load_failed"
# Role: the code for a file that is nowhere, and the code for one that is not the right file.
_CODES: Final[dict[Role, tuple[str, str]]] = {
    "csm_config": ("csm_config_unavailable", "csm_config_invalid"),
    "csm_model": ("csm_model_unavailable", LOAD_FAILED),
    "llama_tokenizer": ("llama_tokenizer_unavailable", "llama_tokenizer_unavailable"),
    "mimi_weight": ("mimi_model_unavailable", LOAD_FAILED),
    "mimi_config": ("mimi_model_unavailable", LOAD_FAILED),
}

UNFIT: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
"""What torch and moshi raise for sizes that make no model and for what a device can't compute."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a worker needs of its artifact.

    ``state`` has torchtune's names, on one device and in one dtype. ``mimi`` is the decoding half
    of a ``moshi.models.MimiModel`` in float32. ``voices`` maps profile ids to prompts.
    """

    config: CsmConfig
    tokenizer: TextTokenizer
    voices: dict[str, VoicePrompt]
    state: dict[str, Tensor]
    mimi: Any


def load_checkpoint(
    artifact: Artifact,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    hub_roots: Sequence[Path] = (),
) -> Checkpoint:
    """All of the artifact, small files first. Raises SpeechError as the module says.

    ``hub_roots`` are Hugging Face hub caches to look in besides the artifact's directory; nothing
    is fetched.
    """
    config = load_config(artifact, hub_roots)
    tokenizer = load_tokenizer(artifact, config, hub_roots)
    voices = load_voice_prompts(artifact, tokenizer, config.codebook_size)
    state = load_state(artifact, config, device=device, dtype=dtype, hub_roots=hub_roots)
    mimi = load_mimi(artifact, config, device=device, hub_roots=hub_roots)
    return Checkpoint(config, tokenizer, voices, state, mimi)


def load_config(artifact: Artifact, hub_roots: Sequence[Path] = ()) -> CsmConfig:
    """``config.json``, checked against the frame contract of the code and of the manifest."""
    text = _read_text(artifact, "csm_config", hub_roots)
    try:
        config = from_json(text.decode())
    except UnicodeDecodeError as error:
        raise SpeechError("csm_config_invalid", "config.json is not UTF-8") from error
    if config.max_seq_len != artifact.manifest.max_seq_len:
        raise SpeechError(
            "csm_config_invalid",
            f"config.json has {config.max_seq_len} positions, "
            f"the manifest {artifact.manifest.max_seq_len}",
        )
    return config


def load_tokenizer(
    artifact: Artifact, config: CsmConfig, hub_roots: Sequence[Path] = ()
) -> TextTokenizer:
    data = _read_text(artifact, "llama_tokenizer", hub_roots)
    try:
        return TextTokenizer.from_bytes(data, config)
    except ValueError as error:
        raise SpeechError("llama_tokenizer_unavailable", str(error)) from error


def load_state(
    artifact: Artifact,
    config: CsmConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    hub_roots: Sequence[Path] = (),
) -> dict[str, Tensor]:
    """The CSM's weights by torchtune's names, whichever layout the file has.

    Those of a quantized artifact stay int8, with their scales, where there is a product for them.
    """
    try:
        named = to_torchtune(_read(artifact, "csm_model", hub_roots, read_safetensors), config)
    except BadFile as error:
        raise SpeechError(LOAD_FAILED, str(error)) from error
    # Popped one by one: a converted tensor and its source live together only for a moment.
    device = torch.device(device)
    if not multiplies_int8(device):
        widen(named)
    kept = {name for name, each in named.items() if each.dtype == torch.int8}
    kept |= {name + SCALE for name in kept}
    return {
        name: _place(named.pop(name), device, None if name in kept else dtype)
        for name in list(named)
    }


def _place(tensor: Tensor, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    if device.type == "cpu" and dtype not in (None, tensor.dtype):
        return copied(tensor, dtype)
    return tensor.to(device, dtype)


def load_mimi(
    artifact: Artifact,
    config: CsmConfig,
    *,
    device: torch.device | str = "cpu",
    hub_roots: Sequence[Path] = (),
    decode_only: bool = True,
) -> Any:
    """The codec; without a ``mimi_config`` in the manifest it has the published dimensions.

    ``decode_only`` leaves the encoder out and settles the rest for one-frame calls.
    """
    dimensions = default_mimi_config()
    try:
        if artifact.manifest.file("mimi_config"):
            dimensions = json.loads(_read_text(artifact, "mimi_config", hub_roots))
        # The weights have no name here: what settles goes at once.
        mimi = build_mimi(
            dimensions,
            _read(artifact, "mimi_weight", hub_roots, read_safetensors),
            device,
            decode_only=decode_only,
        )
        if decode_only:
            settle_mimi(mimi)
    except (BadFile, *UNFIT) as error:
        raise SpeechError(LOAD_FAILED, f"the Mimi can't be built: {error}") from error
    if (mimi.total_codebooks, mimi.cardinality) != (config.num_codebooks, config.codebook_size):
        raise SpeechError(
            LOAD_FAILED,
            f"the Mimi has {mimi.total_codebooks} codebooks of {mimi.cardinality}, "
            f"config.json {config.num_codebooks} of {config.codebook_size}",
        )
    return mimi


class _Read(Protocol[Content]):
    """``read_verified`` or ``read_safetensors``."""

    def __call__(self, path: Path, digest: str, size: int | None) -> Content: ...


def _read(
    artifact: Artifact, role: Role, hub_roots: Sequence[Path], read: _Read[Content]
) -> Content:
    """The verified file with that role: of all candidates the first that is the right one."""
    missing, wrong = _CODES[role]
    name, entry = artifact.manifest.one(role)
    faults: list[str] = []
    mismatched = False
    for path in artifact.candidates(role, hub_roots):
        try:
            return read(path, entry.sha256, entry.bytes)
        except BadFile as error:
            mismatched = True
            faults.append(str(error))
        except OSError as error:
            faults.append(error.strerror or "can't be read")
    reason = "; ".join(faults) or "no such file in the artifact's directory or the hub cache"
    raise SpeechError(wrong if mismatched else missing, f"{name}: {reason}")


def _read_text(artifact: Artifact, role: Role, hub_roots: Sequence[Path]) -> bytes:
    return _read(artifact, role, hub_roots, read_verified).numpy().tobytes()
