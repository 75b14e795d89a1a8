"""A CSM's ``config.json``, as ``sesame/csm-1b`` has one, checked against our contract.

Keys and defaults are those of transformers' ``CsmConfig`` and ``CsmDepthDecoderConfig`` (4.57), so
that one file describes both weight layouts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from gpu_worker.model.config import LLAMA_1B, LLAMA_100M, CsmConfig, TransformerConfig
from shared.errors import SpeechError
from shared.wav import CODEBOOKS, FRAME_MS, SAMPLE_RATE

_MAX_SEQ_LEN: Final = 2048
_FRAME_RATE: Final = 1000 / FRAME_MS
_CODEBOOK_EOS: Final = 0


def from_json(text: str) -> CsmConfig:
    """Read ``config.json``; raises ``SpeechError("csm_config_invalid")`` off the contract."""
    try:
        config = _parse(json.loads(text))
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        raise _invalid(f"config.json is not a CSM configuration: {error!r}") from error
    _check_shapes(config)
    _check_contract(config)
    return config


def to_json(config: CsmConfig) -> str:
    """A ``config.json`` that ``from_json`` and transformers read."""
    depth = _transformer_keys(config.depth) | {
        "model_type": "csm_depth_decoder_model",
        "backbone_hidden_size": config.backbone.hidden_size,
        "num_codebooks": config.num_codebooks,
        "vocab_size": config.audio_vocab_size,
        "max_position_embeddings": config.num_codebooks + 1,
    }
    codec = {
        "model_type": "mimi",
        "audio_channels": 1,
        "codebook_size": config.codebook_size,
        "frame_rate": config.frame_rate,
        "num_quantizers": config.num_codebooks,
        "sampling_rate": config.sample_rate,
    }
    document = _transformer_keys(config.backbone) | {
        "architectures": ["CsmForConditionalGeneration"],
        "model_type": "csm",
        "audio_eos_token_id": config.eos_id + 2,
        "audio_num_codebooks": config.num_codebooks,
        "audio_token_id": config.eos_id + 1,
        "audio_vocab_size": config.audio_vocab_size,
        "bos_token_id": config.bos_id,
        "codebook_eos_token_id": config.codebook_eos_id,
        "eos_token_id": None if config.eos_id == config.bos_id + 1 else config.eos_id,
        "codebook_pad_token_id": config.codebook_pad_id,
        "codec_config": codec,
        "depth_decoder_config": depth,
        "max_position_embeddings": config.max_seq_len,
        "num_codebooks": config.num_codebooks,
        "pad_token_id": config.eos_id + 1,
        "text_vocab_size": config.text_vocab_size,
        "tie_codebooks_embeddings": config.tie_codebooks_embeddings,
        "vocab_size": config.audio_vocab_size,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _invalid(message: str) -> SpeechError:
    return SpeechError("csm_config_invalid", message)


def _parse(document: dict[str, Any]) -> CsmConfig:
    if document["model_type"] != "csm":
        raise ValueError(f"model_type is {document['model_type']!r}, not 'csm'")
    depth = document["depth_decoder_config"]
    codec = document.get("codec_config") or {}
    codebooks = _integer(document, "num_codebooks", 32)
    vocab = _integer(document, "vocab_size", 2051)
    hidden = _integer(document, "hidden_size", 2048)
    bos = _integer(document, "bos_token_id", 128_000)
    _agree(document, "audio_num_codebooks", codebooks)
    _agree(document, "audio_vocab_size", vocab)
    _agree(depth, "num_codebooks", codebooks)
    _agree(depth, "vocab_size", vocab)
    _agree(depth, "backbone_hidden_size", hidden)
    _agree(codec, "num_quantizers", codebooks)
    if _integer(depth, "max_position_embeddings", codebooks + 1) < codebooks:
        raise ValueError("the depth decoder has fewer positions than codebooks")
    return CsmConfig(
        backbone=_parse_transformer(document, LLAMA_1B),
        depth=_parse_transformer(depth, LLAMA_100M),
        text_vocab_size=_integer(document, "text_vocab_size", 128_256),
        audio_vocab_size=vocab,
        num_codebooks=codebooks,
        codebook_size=_integer(codec, "codebook_size", 2048),
        max_seq_len=_integer(document, "max_position_embeddings", 2048),
        codebook_eos_id=_integer(document, "codebook_eos_token_id", 0),
        codebook_pad_id=_integer(document, "codebook_pad_token_id", 2050),
        bos_id=bos,
        # The published file leaves it open; Llama's end of text follows its begin of text.
        eos_id=_integer(document, "eos_token_id", bos + 1),
        sample_rate=_integer(codec, "sampling_rate", 24_000),
        frame_rate=_number(codec, "frame_rate", _number(codec, "_frame_rate", 12.5)),
        tie_codebooks_embeddings=bool(document.get("tie_codebooks_embeddings", True)),
    )


def _parse_transformer(keys: Mapping[str, Any], defaults: TransformerConfig) -> TransformerConfig:
    hidden = _integer(keys, "hidden_size", defaults.hidden_size)
    heads = _integer(keys, "num_attention_heads", defaults.num_heads)
    for name in ("attention_bias", "mlp_bias"):
        if keys.get(name):
            raise ValueError(f"{name} is not part of a CSM")
    if keys.get("hidden_act", "silu") != "silu":
        raise ValueError("hidden_act is not 'silu'")
    rope = keys.get("rope_scaling") or {"rope_type": "default"}
    rope_type = rope.get("rope_type", rope.get("type"))
    if rope_type not in ("default", "llama3"):
        raise ValueError(f"rope_scaling of type {rope_type!r} is not part of a CSM")
    scaled = rope_type == "llama3"
    return TransformerConfig(
        hidden_size=hidden,
        num_layers=_integer(keys, "num_hidden_layers", defaults.num_layers),
        num_heads=heads,
        num_kv_heads=_integer(keys, "num_key_value_heads", defaults.num_kv_heads),
        head_dim=_integer(keys, "head_dim", hidden // heads),
        intermediate_size=_integer(keys, "intermediate_size", defaults.intermediate_size),
        norm_eps=_number(keys, "rms_norm_eps", 1e-5),
        rope_theta=_number(keys, "rope_theta", 500_000.0),
        rope_factor=_number(rope, "factor") if scaled else 1.0,
        rope_low_freq_factor=_number(rope, "low_freq_factor") if scaled else 0.125,
        rope_high_freq_factor=_number(rope, "high_freq_factor") if scaled else 0.5,
        rope_original_max_position=(
            _integer(rope, "original_max_position_embeddings") if scaled else 1024
        ),
    )


def _integer(keys: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = keys.get(name)
    if value is None:
        value = default
    if type(value) is not int:
        raise ValueError(f"{name} is not a whole number")
    return value


def _number(keys: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = keys.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number")
    return float(value)


def _agree(keys: Mapping[str, Any], name: str, expected: int) -> None:
    if _integer(keys, name, expected) != expected:
        raise ValueError(f"{name} is {keys[name]}, elsewhere {expected}")


def _check_shapes(config: CsmConfig) -> None:
    for name, part in (("backbone", config.backbone), ("depth decoder", config.depth)):
        sizes = (
            part.hidden_size,
            part.num_layers,
            part.num_heads,
            part.num_kv_heads,
            part.head_dim,
            part.intermediate_size,
        )
        if min(sizes) < 1 or part.norm_eps <= 0 or part.rope_theta <= 1 or part.rope_factor < 1:
            raise _invalid(f"the {name} has a size or constant out of range")
        if part.num_heads % part.num_kv_heads or part.head_dim % 2:
            raise _invalid(f"the {name}'s heads don't divide into groups and rotary pairs")
        if not 0 < part.rope_low_freq_factor < part.rope_high_freq_factor:
            raise _invalid(f"the {name}'s rotary frequency factors are out of order")
        if part.rope_original_max_position < 1:
            raise _invalid(f"the {name}'s rotary scaling has no original length")
    if not 1 < config.codebook_size <= config.audio_vocab_size <= 65_536:
        raise _invalid("the codec has more codes than the model's audio vocabulary")
    if config.text_vocab_size < 1 or max(config.bos_id, config.eos_id) >= config.text_vocab_size:
        raise _invalid("the text vocabulary has no room for its own begin and end")


def _check_contract(config: CsmConfig) -> None:
    """What frames, digests and prompt windows rest on. The pad id is the last audio id (2050)."""
    expected = {
        "num_codebooks": (config.num_codebooks, CODEBOOKS),
        "max_position_embeddings": (config.max_seq_len, _MAX_SEQ_LEN),
        "codec_config.sampling_rate": (config.sample_rate, SAMPLE_RATE),
        "codec_config.frame_rate": (config.frame_rate, _FRAME_RATE),
        "codebook_eos_token_id": (config.codebook_eos_id, _CODEBOOK_EOS),
        "codebook_pad_token_id": (config.codebook_pad_id, config.audio_vocab_size - 1),
    }
    for name, (value, required) in expected.items():
        if value != required:
            raise _invalid(f"{name} is {value}, the frame contract needs {required}")


def _transformer_keys(part: TransformerConfig) -> dict[str, Any]:
    scaling = {
        "rope_type": "llama3",
        "factor": part.rope_factor,
        "low_freq_factor": part.rope_low_freq_factor,
        "high_freq_factor": part.rope_high_freq_factor,
        "original_max_position_embeddings": part.rope_original_max_position,
    }
    return {
        "attention_bias": False,
        "head_dim": part.head_dim,
        "hidden_act": "silu",
        "hidden_size": part.hidden_size,
        "intermediate_size": part.intermediate_size,
        "mlp_bias": False,
        "num_attention_heads": part.num_heads,
        "num_hidden_layers": part.num_layers,
        "num_key_value_heads": part.num_kv_heads,
        "rms_norm_eps": part.norm_eps,
        "rope_scaling": scaling if part.rope_factor != 1.0 else None,
        "rope_theta": part.rope_theta,
    }
