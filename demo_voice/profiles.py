"""How much of everything: ``full`` makes the voice, ``smoke`` only proves that every stage works.

Nothing else decides sizes. A stage stores the digest of what made it, so that another profile,
seed or recipe never goes on with a former one's files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpu_worker.model.config import TransformerConfig


@dataclass(frozen=True, slots=True)
class Style:
    """One way to speak. ``stretch`` multiplies flite's durations; ``share`` of the corpus."""

    name: str
    flite_voice: str
    stretch: float
    share: float


@dataclass(frozen=True, slots=True)
class Steps:
    """One training. ``warm_up`` in steps; the rate falls as a cosine from there to a fiftieth."""

    steps: int
    batch: int
    rate: float
    warm_up: int
    save_every: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole recipe. Codebooks from ``live_codebooks`` on say nothing: their one code is 0."""

    name: str
    model_id: str
    model_version: str
    utterances: int
    isolated_share: float
    free_share: float
    mimi_filters: int
    mimi_dim: int
    mimi_layers: int
    codebook_dim: int
    codebook_size: int
    live_codebooks: int
    backbone: TransformerConfig
    depth: TransformerConfig
    autoencoder: Steps
    decoder: Steps
    teacher: Steps
    fit_frames: int
    evaluated: int
    seed: int = 1
    prompt: str = "I am ready."
    styles: tuple[Style, ...] = field(
        default=(Style("even", "rms", 1.0, 0.6), Style("slow", "rms", 1.3, 0.4))
    )


FULL: Final = Profile(
    name="full",
    model_id="psionic-demo/csm-spoken",
    model_version="csm_spoken_demo_v2",
    utterances=8_000,
    isolated_share=0.1,
    free_share=0.5,
    mimi_filters=16,
    mimi_dim=128,
    mimi_layers=2,
    codebook_dim=32,
    codebook_size=256,
    live_codebooks=4,
    backbone=TransformerConfig(256, 6, 8, 4, 32, 640),
    depth=TransformerConfig(128, 2, 4, 2, 32, 320),
    autoencoder=Steps(10_000, 8, 1.5e-3, 100, 250),
    decoder=Steps(10_000, 8, 1e-3, 50, 250),
    teacher=Steps(6_500, 32, 1.5e-3, 200, 100),
    fit_frames=150_000,
    evaluated=100,
)
SMOKE: Final = Profile(
    name="smoke",
    model_id="psionic-demo/csm-spoken-smoke",
    model_version="csm_spoken_smoke_v1",
    utterances=48,
    isolated_share=0.1,
    free_share=0.5,
    mimi_filters=4,
    mimi_dim=32,
    mimi_layers=1,
    codebook_dim=8,
    codebook_size=32,
    live_codebooks=4,
    backbone=TransformerConfig(32, 2, 4, 2, 8, 48),
    depth=TransformerConfig(16, 1, 2, 1, 8, 32),
    autoencoder=Steps(4, 2, 1e-3, 1, 2),
    decoder=Steps(4, 2, 1e-3, 1, 2),
    teacher=Steps(6, 4, 1e-3, 1, 3),
    fit_frames=600,
    evaluated=2,
)
PROFILES: Final = {profile.name: profile for profile in (FULL, SMOKE)}
