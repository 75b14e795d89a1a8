"""The shape of a CSM, and that of ``sesame/csm-1b``. How a file says it: ``config_json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """One Llama-style transformer. ``rope_factor`` 1.0 means unscaled rotary frequencies.

    The rotary defaults are torchtune's for Llama 3.2 (factors 1 and 4 of 8192 positions) as the
    published file states them: only the quotients count.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float = 1e-5
    rope_theta: float = 500_000.0
    rope_factor: float = 32.0
    rope_low_freq_factor: float = 0.125
    rope_high_freq_factor: float = 0.5
    rope_original_max_position: int = 1024

    @property
    def queries_per_kv_head(self) -> int:
        """How many query heads share one key and value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class CsmConfig:
    """A CSM: backbone over text and audio frames, depth decoder over the codebooks of one frame.

    ``audio_vocab_size`` is the rows per codebook in the embeddings and heads; ids from
    ``codebook_size`` on exist there but not in the codec and are never sampled. ``frame_rate`` is
    in Hz, ``sample_rate`` in samples per second.
    """

    backbone: TransformerConfig
    depth: TransformerConfig
    text_vocab_size: int = 128_256
    audio_vocab_size: int = 2051
    num_codebooks: int = 32
    codebook_size: int = 2048
    max_seq_len: int = 2048
    codebook_eos_id: int = 0
    codebook_pad_id: int = 2050
    bos_id: int = 128_000
    eos_id: int = 128_001
    sample_rate: int = 24_000
    frame_rate: float = 12.5
    tie_codebooks_embeddings: bool = True

    @classmethod
    def csm_1b(cls) -> CsmConfig:
        """The published size: torchtune's flavours ``llama-1B`` and ``llama-100M``."""
        return cls(backbone=LLAMA_1B, depth=LLAMA_100M)


LLAMA_1B: Final = TransformerConfig(
    hidden_size=2048,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    intermediate_size=8192,
)
LLAMA_100M: Final = TransformerConfig(
    hidden_size=1024,
    num_layers=4,
    num_heads=8,
    num_kv_heads=2,
    head_dim=128,
    intermediate_size=8192,
    rope_low_freq_factor=0.001953125,
    rope_high_freq_factor=0.0078125,
    rope_original_max_position=16,
)
