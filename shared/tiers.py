"""Deployment tiers: one row each of what callers may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Tier:
    """What one deployment tier allows. Lengths and timeouts in milliseconds."""

    name: str
    default_audio_length_ms: int
    max_audio_length_ms: int
    max_timeout_ms: int
    max_queue_depth: int
    max_waiting_per_principal: int
    allows_open_access: bool


TIERS: Final[dict[str, Tier]] = {
    tier.name: tier
    for tier in (
        #     name          default  longest  timeout  depth  per principal  open
        Tier("local", 15_000, 20_000, 30_000, 256, 256, True),
        Tier("dogfood", 15_000, 20_000, 30_000, 256, 64, False),
        Tier("canary", 15_000, 20_000, 30_000, 512, 64, False),
        Tier("production", 15_000, 20_000, 30_000, 1024, 128, False),
    )
}
