"""``config.json``: what is read, and what is off the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_worker.model.config import CsmConfig
from gpu_worker.model.config_json import from_json, to_json
from shared.errors import SpeechError
from tests.gpu_worker.tiny import TINY


def changed(**changes: Any) -> str:
    document = json.loads(to_json(CsmConfig.csm_1b()))
    for path, value in changes.items():
        *parents, name = path.split("__")
        target = document
        for parent in parents:
            target = target[parent]
        target[name] = value
    return json.dumps(document)


@pytest.mark.parametrize("config", [CsmConfig.csm_1b(), TINY])
def test_survives_its_own_file(config: CsmConfig) -> None:
    """A configuration written to config.json reads back equal."""
    assert from_json(to_json(config)) == config


def test_published_dimensions() -> None:
    """CSM-1B is torchtune's llama-1B over llama-100M."""
    config = CsmConfig.csm_1b()

    backbone, depth = config.backbone, config.depth
    assert (backbone.num_layers, backbone.num_heads, backbone.num_kv_heads) == (16, 32, 8)
    assert (backbone.hidden_size, backbone.intermediate_size, backbone.head_dim) == (2048, 8192, 64)
    assert (depth.num_layers, depth.num_heads, depth.num_kv_heads) == (4, 8, 2)
    assert (depth.hidden_size, depth.intermediate_size, depth.head_dim) == (1024, 8192, 128)


def test_agrees_with_transformers_defaults() -> None:
    """What transformers writes for its default CSM, which leaves defaults out, reads as CSM-1B."""
    from transformers import CsmConfig as HfConfig

    theirs = HfConfig(**json.loads(to_json(CsmConfig.csm_1b())))

    assert from_json(theirs.to_json_string(use_diff=True)) == CsmConfig.csm_1b()


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "llama"},
        {"max_position_embeddings": 4096},
        {"num_codebooks": 31},
        {"audio_num_codebooks": 31},
        {"depth_decoder_config__num_codebooks": 31},
        {"codec_config__num_quantizers": 8},
        {"codec_config__sampling_rate": 16_000},
        {"codec_config__frame_rate": 25.0},
        {"codebook_eos_token_id": 1},
        {"codebook_pad_token_id": 2049},
        {"vocab_size": 2052},
        {"depth_decoder_config__vocab_size": 2048},
        {"depth_decoder_config__backbone_hidden_size": 1024},
        {"depth_decoder_config__max_position_embeddings": 16},
        {"codec_config__codebook_size": 4096},
        {"hidden_size": "2048"},
        {"hidden_size": True},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 7},
        {"head_dim": 63},
        {"attention_bias": True},
        {"hidden_act": "gelu"},
        {"rms_norm_eps": 0},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "llama3", "factor": 32.0}},
        {"text_vocab_size": 100},
        {"depth_decoder_config": None},
    ],
    ids=str,
)
def test_refuses_what_is_off_the_contract(change: dict[str, Any]) -> None:
    """Every constant that frames, digests and windows rest on is checked."""
    with pytest.raises(SpeechError) as caught:
        from_json(changed(**change))

    assert caught.value.code == "csm_config_invalid"


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"model_type": "csm"', "[" * 5000])
def test_refuses_what_is_no_configuration(text: str) -> None:
    """Anything but a CSM's JSON object is refused with the code, never another exception."""
    with pytest.raises(SpeechError) as caught:
        from_json(text)

    assert caught.value.code == "csm_config_invalid"


def test_rotary_scaling_may_be_absent() -> None:
    """Without rope_scaling the frequencies are plain, as transformers reads such a file."""
    config = from_json(changed(rope_scaling=None))

    assert config.backbone.rope_factor == 1.0
    assert config.depth.rope_factor == 32.0
