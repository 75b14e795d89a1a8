"""The demo's names and sizes. Loads no torch, so that a command can ask who a demo is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_worker.model.config import TransformerConfig


@dataclass(frozen=True, slots=True)
class DemoSize:
    """Dimensions of one demo. ``version`` changes whenever what is built changes."""

    model_id: str
    version: str
    backbone: TransformerConfig
    depth: TransformerConfig
    mimi_filters: int
    mimi_dim: int
    codebook_dim: int
    prompt_frames: int


SIZES: Final = {
    "demo": DemoSize(
        model_id="psionic-demo/csm-tiny",
        version="csm_tiny_demo_v2",
        backbone=TransformerConfig(128, 2, 8, 2, 16, 320),
        depth=TransformerConfig(64, 1, 4, 2, 16, 160),
        mimi_filters=8,
        mimi_dim=64,
        codebook_dim=16,
        prompt_frames=30,
    ),
    # For tests that only need every part to be there.
    "tiny": DemoSize(
        model_id="psionic-demo/csm-tiny-test",
        version="csm_tiny_test_v2",
        backbone=TransformerConfig(32, 2, 4, 2, 8, 48),
        depth=TransformerConfig(16, 1, 2, 1, 8, 32),
        mimi_filters=4,
        mimi_dim=32,
        codebook_dim=8,
        prompt_frames=4,
    ),
}
