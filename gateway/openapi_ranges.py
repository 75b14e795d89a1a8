"""What a field of a body may hold beyond its type: the bounds of ``gateway.validation``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.formats import STREAM_FORMATS
from gateway.ids import ID
from gateway.schema import (
    MAX_PLAYED_MS,
    MAX_TEMPERATURE,
    MIN_AUDIO_LENGTH_MS,
    MODES,
    OUTCOMES,
    REASON,
)
from gateway.text import MAX_INPUT_CHARACTERS, NORMALIZATIONS
from shared.messages import BATCH, CONTEXT_NONE, CONTEXT_PROMPT, INTERACTIVE, MAX_SEED
from shared.settings import GatewaySettings

SAID_TEXT: Final = "what is to be said, in at most so many characters"

Spec = dict[str, Any]


def ranges(settings: GatewaySettings, formats: tuple[str, ...]) -> dict[str, Spec]:
    """By name of the field."""
    longest = settings.tier.max_timeout_ms
    return {
        "input": {"minLength": 1, "maxLength": MAX_INPUT_CHARACTERS, "description": SAID_TEXT},
        "model": {"enum": [settings.model_id, *settings.model_aliases]},
        "request_id": ID,
        "cancellation_id": ID,
        "response_format": {"enum": list(formats)},
        "stream_format": {"enum": list(STREAM_FORMATS)},
        "timeout_ms": {"minimum": 1, "maximum": longest},
        "voice_turn_budget_ms": {"minimum": 1, "maximum": longest},
        "seed": {"minimum": 0, "maximum": MAX_SEED},
        "max_audio_length_ms": {
            "minimum": MIN_AUDIO_LENGTH_MS,
            "maximum": settings.tier.max_audio_length_ms,
        },
        "context_policy": {"enum": [CONTEXT_NONE, CONTEXT_PROMPT]},
        "priority": {"enum": [INTERACTIVE, BATCH]},
        "text_normalization": {"enum": list(NORMALIZATIONS)},
        "temperature": {"minimum": 0.0, "maximum": MAX_TEMPERATURE},
        "top_k": {"minimum": 1},
    }


def outcome_ranges() -> dict[str, Spec]:
    """By name of the field, of the body that tells an outcome."""
    return {
        "outcome": {"enum": list(OUTCOMES)},
        "mode": {"enum": list(MODES)},
        "reason": {"pattern": REASON},
        "played_ms": {"minimum": 0, "maximum": MAX_PLAYED_MS},
        "reference": ID,
    }


def fields(schema: Spec, known: Mapping[str, Spec]) -> None:
    """Narrow the properties of an object's schema in place; null stays allowed where it was."""
    for name, narrower in known.items():
        field = schema["properties"].get(name)
        if field is None:
            continue
        for branch in field.get("anyOf", [field]):
            if branch.get("type") != "null":
                branch.update(narrower)
        if "anyOf" in field:
            field.pop("minimum", None)
