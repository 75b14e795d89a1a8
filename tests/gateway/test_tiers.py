"""Each tier's row, held at the door: what a caller may ask for, and what is assumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.call import SpeechCall
from gateway.schema import SpeechRequest, parse
from gateway.validation import Validator
from shared.errors import SpeechError
from shared.governance.artifacts import ArtifactRegistry
from shared.settings import GatewaySettings, QueueSettings
from shared.tiers import TIERS
from tests.gateway.artifacts import write_artifact

ROWS = [
    # name, default length, longest length, longest timeout, queue depth, waiting of one caller
    ("local", 15_000, 20_000, 30_000, 256, 256),
    ("dogfood", 15_000, 20_000, 30_000, 256, 64),
    ("canary", 15_000, 20_000, 30_000, 512, 64),
    ("production", 15_000, 20_000, 30_000, 1024, 128),
]


def environment(tier: str) -> dict[str, str]:
    return {"PSIONIC_CSM_TIER": tier, "PSIONIC_CSM_API_KEYS": "k" * 16}


def checker(directory: Path, tier: str) -> Validator:
    settings = GatewaySettings.from_env(environment(tier))
    return Validator(settings, ArtifactRegistry([write_artifact(directory / "a")]), ("wav",))


def check(validator: Validator, **values: Any) -> SpeechCall:
    return validator.check(parse(SpeechRequest, {"input": "Hello.", **values}), "r1")


def test_every_tier_has_a_row_here() -> None:
    """A new tier is a decision about each of its bounds."""
    assert [row[0] for row in ROWS] == list(TIERS)


@pytest.mark.parametrize(
    ("tier", "default", "longest", "timeout", "depth", "own"), ROWS, ids=[row[0] for row in ROWS]
)
def test_a_tier_bounds_what_is_asked(
    tmp_path: Path, tier: str, default: int, longest: int, timeout: int, depth: int, own: int
) -> None:
    """The most that is granted is granted, one more is a 400 that names the bound."""
    validator = checker(tmp_path, tier)
    queue = QueueSettings.from_env(environment(tier))

    assert check(validator, input="a" * 375).job.max_frames == default // 80
    assert check(validator, max_audio_length_ms=longest).job.max_frames == longest // 80
    assert check(validator, timeout_ms=timeout).timeout_ms == timeout
    assert (queue.max_queue_depth, queue.max_waiting_per_principal) == (depth, own)
    for name, most in (
        ("max_audio_length_ms", longest),
        ("timeout_ms", timeout),
        ("voice_turn_budget_ms", timeout),
    ):
        with pytest.raises(SpeechError, match=str(most)) as refused:
            check(validator, **{name: most + 1})
        assert (refused.value.code, refused.value.status) == (f"invalid_{name}", 400)
        assert refused.value.param == name
