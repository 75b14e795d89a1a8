"""What the POST routes accept, as types. Ranges and meaning are checked in ``validation``.

A value of the wrong type is ``invalid_type``: a bool is no integer, a fraction is no integer, a
negative number is no unsigned one. An optional field that is null counts as not given.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from shared.errors import SpeechError

MIN_AUDIO_LENGTH_MS: Final = 80
MAX_TEMPERATURE: Final = 2.0
OUTCOMES: Final = ("accepted", "rejected", "fallback_used", "not_played")
MODES: Final = ("live", "shadow")
MAX_PLAYED_MS: Final = 60_000
REASON: Final = "^[a-z][a-z0-9_]{0,63}$"
"""What a reason may be: a code of the caller's own. Nothing that was said fits in."""

_SHOWN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _unsigned(value: int) -> int:
    if value < 0:
        raise PydanticCustomError("unsigned", "must not be negative")
    return value


Unsigned = Annotated[int, Field(json_schema_extra={"minimum": 0}), AfterValidator(_unsigned)]


class Part(BaseModel):
    """An object of the wire: strict types; unknown keys are kept aside, to be refused by name."""

    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, hide_input_in_errors=True, allow_inf_nan=True
    )

    def unknown(self) -> list[str]:
        return sorted(self.__pydantic_extra__ or {})


class VoiceReference(Part):
    """OpenAI's object form of ``voice``."""

    id: str


class Options(Part):
    """``psionic_csm``: how to generate. Sampling is named here alone, the rest in either place."""

    temperature: float | None = None
    top_k: Unsigned | None = None
    max_audio_length_ms: Unsigned | None = None
    context_policy: str | None = None


class SpeechRequest(Part):
    """The body of both speech routes."""

    input: str
    model: str | None = None
    request_id: str | None = None
    artifact_id: str | None = None
    voice: str | VoiceReference | None = None
    voice_profile_id: str | None = None
    response_format: str | None = None
    stream: bool | None = None
    stream_format: str | None = None
    text_normalization: str | None = None
    cancellation_id: str | None = None
    timeout_ms: Unsigned | None = None
    priority: str | None = None
    seed: int | None = None
    voice_turn_budget_ms: int | None = None
    max_audio_length_ms: Unsigned | None = None
    context_policy: str | None = None
    psionic_csm: Options | None = None

    @property
    def options(self) -> Options:
        return self.psionic_csm or Options()

    def all_unknown(self) -> list[str]:
        """Names of keys that this service doesn't know, nested ones with their path."""
        names = self.unknown()
        if self.psionic_csm is not None:
            names += [f"psionic_csm.{name}" for name in self.psionic_csm.unknown()]
        if isinstance(self.voice, VoiceReference):
            names += [f"voice.{name}" for name in self.voice.unknown()]
        return names


class CancellationRequest(Part):
    """The body of ``POST /psionic/csm/cancellations``: exactly one of the two ids."""

    cancellation_id: str | None = None
    request_id: str | None = None


class OutcomeRequest(Part):
    """What the caller's business made of a request, in codes and a number: text has no place."""

    outcome: str
    mode: str | None = None
    reason: str | None = None
    played_ms: Unsigned | None = None
    reference: str | None = None


NO_OBJECT: Final = ("model_type", "model_attributes_type", "dict_type")
"""Pydantic's names for that fault; what it says of it names classes."""

AnyPart = TypeVar("AnyPart", bound=Part)


def parse(kind: type[AnyPart], values: dict[str, Any]) -> AnyPart:
    """Raises SpeechError("invalid_type") that names the first field at fault, if it has a name."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = [part for part in first["loc"] if isinstance(part, str)]
        depth = 2 if place[:1] == ["psionic_csm"] else 1
        param = ".".join(place[:depth]) or None
        said = "must be an object" if first["type"] in NO_OBJECT else first["msg"]
        fault = f"{param}: {said}" if param else "the body has a key that is no text"
        raise SpeechError("invalid_type", fault, param=param) from None


def refuse_unknown(names: list[str]) -> None:
    """Raises SpeechError("unknown_parameter") if there is any."""
    if names:
        name = shown(names[0])
        raise SpeechError("unknown_parameter", f"unknown parameter: {name}", param=name)


def refuse_unsupported(request: SpeechRequest) -> None:
    """OpenAI's own keys that would change the speech, and that we can't honour.

    Raises SpeechError("unsupported_parameter").
    """
    extra = request.__pydantic_extra__ or {}
    if extra.get("instructions") not in (None, ""):
        raise SpeechError(
            "unsupported_parameter", "instructions are not served", param="instructions"
        )
    speed = extra.get("speed")
    if speed is not None and (isinstance(speed, bool) or speed != 1):
        raise SpeechError("unsupported_parameter", "only speed 1.0 is served", param="speed")


def shown(name: str) -> str:
    """A caller's key as it may appear in an answer."""
    return name if _SHOWN_NAME.fullmatch(name) else "(unprintable)"
