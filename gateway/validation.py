"""From a request's values to a call that can be admitted: ranges, meaning, defaults, in order.

The order is the contract's: of several faults, the first of this list is the one that is named.
Nothing that fails here reaches Redis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from gateway.call import SpeechCall
from gateway.formats import choose_transport
from gateway.ids import check_id
from gateway.lengths import Lengths, check_speakable, check_window
from gateway.schema import (
    MAX_TEMPERATURE,
    Options,
    SpeechRequest,
    VoiceReference,
)
from gateway.text import AS_SENT, NORMALIZATIONS, spoken_text
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact, ArtifactRegistry
from shared.governance.voices import VoiceProfile
from shared.messages import (
    BATCH,
    CONTEXT_NONE,
    CONTEXT_PROMPT,
    INTERACTIVE,
    MAX_SEED,
    SpeechJob,
)
from shared.settings import GatewaySettings
from shared.wav import FRAME_MS

EITHER_PLACE: Final = ("max_audio_length_ms", "context_policy")
"""Options that count at the top level too."""
MIMI_CODES: Final = 2048
"""A top-k above the number of candidates changes nothing."""


def default_seed(request_id: str) -> int:
    """The first 53 bits of SHA-256 of the request id, so that a retry sounds the same."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big") >> 11


class Validator:
    """The rules of one deployment: its tier, its model names, its artifacts, its formats."""

    def __init__(
        self, settings: GatewaySettings, registry: ArtifactRegistry, formats: Sequence[str]
    ) -> None:
        self._lengths = Lengths(settings.tier)
        self._models = (settings.model_id, *settings.model_aliases)
        self._registry = registry
        self._formats = formats

    def check(self, request: SpeechRequest, fallback_id: str) -> SpeechCall:
        """``fallback_id`` serves when the body has no id. Raises SpeechError."""
        model = self._model(request.model)
        artifact = self._registry.resolve(request.artifact_id)
        request_id = fallback_id if request.request_id is None else request.request_id
        check_id(request_id, "request_id")
        if request.cancellation_id is not None:
            check_id(request.cancellation_id, "cancellation_id")
        self._lengths.check_timeout(request.timeout_ms)
        normalization = _normalization(request.text_normalization)
        text = spoken_text(request.input, normalization)
        transport = choose_transport(
            request.stream, request.stream_format, request.response_format, self._formats
        )
        profile = _profile(request, artifact)
        options = _merged(request)
        temperature, top_k = _sampling(options, artifact)
        length_at = _place(request, "max_audio_length_ms")
        length_ms = self._lengths.audio_ms(options.max_audio_length_ms, text, length_at)
        policy_at = _place(request, "context_policy")
        policy = _context_policy(options.context_policy, profile, policy_at)
        seed = _seed(request.seed, request_id)
        self._lengths.check_budget(request.voice_turn_budget_ms)
        priority = _priority(request.priority)
        check_speakable(text, length_ms, length_at)
        max_frames = length_ms // FRAME_MS
        check_window(max_frames, policy, artifact, profile)
        return SpeechCall(
            job=SpeechJob(
                request_id=request_id,
                cancellation_id=request.cancellation_id,
                input=text,
                artifact_id=artifact.artifact_id,
                voice_profile_id=profile.profile_id,
                speaker=profile.speaker,
                context_policy=policy,
                max_frames=max_frames,
                temperature=temperature,
                top_k=top_k,
                seed=seed,
            ),
            artifact=artifact,
            profile=profile,
            sent=request.input,
            model=model,
            timeout_ms=request.timeout_ms or self._lengths.default_timeout_ms(length_ms),
            transport=transport,
            voice_turn_budget_ms=request.voice_turn_budget_ms,
            priority=priority,
            text_normalization=normalization,
        )

    def _model(self, name: str | None) -> str:
        if name is None:
            return self._models[0]
        if name not in self._models:
            raise SpeechError("model_unavailable", "no such model is served here", param="model")
        return name


def _profile(request: SpeechRequest, artifact: Artifact) -> VoiceProfile:
    if request.voice_profile_id is not None:
        return artifact.voices.find(request.voice_profile_id)
    voice = request.voice
    if voice is None:
        return artifact.voices.default
    name = voice.id if isinstance(voice, VoiceReference) else voice
    return artifact.voices.find(name, param="voice")


def _merged(request: SpeechRequest) -> Options:
    """Options from both places. Raises SpeechError("conflicting_parameter") if they differ."""
    nested = request.options
    values = nested.model_dump(include=set(Options.model_fields))
    for name in EITHER_PLACE:
        above, below = getattr(request, name), values[name]
        if above is not None and below is not None and above != below:
            raise SpeechError(
                "conflicting_parameter", f"{name} and psionic_csm.{name} differ", param=name
            )
        values[name] = below if above is None else above
    return Options.model_construct(**values)


def _place(request: SpeechRequest, name: str) -> str:
    """Where the caller has put a field of either place, as a refusal names it."""
    is_below = getattr(request, name) is None and getattr(request.options, name) is not None
    return f"psionic_csm.{name}" if is_below else name


def _sampling(options: Options, artifact: Artifact) -> tuple[float, int]:
    defaults = artifact.manifest.sampling_defaults
    temperature = defaults.temperature if options.temperature is None else options.temperature
    if not 0.0 <= temperature <= MAX_TEMPERATURE:
        raise SpeechError(
            "invalid_temperature",
            f"temperature takes 0.0 to {MAX_TEMPERATURE}",
            param="psionic_csm.temperature",
        )
    top_k = defaults.top_k if options.top_k is None else options.top_k
    if top_k < 1:
        raise SpeechError("invalid_top_k", "top_k takes 1 or more", param="psionic_csm.top_k")
    return abs(float(temperature)), min(top_k, MIMI_CODES)


def _context_policy(asked: str | None, profile: VoiceProfile, param: str) -> str:
    if asked is None:
        return CONTEXT_PROMPT if profile.has_prompt else CONTEXT_NONE
    if asked not in (CONTEXT_NONE, CONTEXT_PROMPT):
        raise SpeechError(
            "invalid_context_policy",
            f"context_policy takes {CONTEXT_NONE} or {CONTEXT_PROMPT}",
            param=param,
        )
    if asked == CONTEXT_PROMPT and not profile.has_prompt:
        raise SpeechError(
            "prompt_profile_context_unavailable",
            "the voice has no prompt to speak in the manner of",
            param=param,
        )
    return asked


def _seed(asked: int | None, request_id: str) -> int:
    if asked is None:
        return default_seed(request_id)
    if not 0 <= asked <= MAX_SEED:
        raise SpeechError("invalid_seed", f"seed takes 0 to {MAX_SEED}", param="seed")
    return asked


def _priority(asked: str | None) -> str:
    if asked not in (None, INTERACTIVE, BATCH):
        raise SpeechError(
            "unsupported_parameter",
            f"priority takes {INTERACTIVE} or {BATCH}",
            param="priority",
        )
    return asked or INTERACTIVE


def _normalization(asked: str | None) -> str:
    if asked is not None and asked not in NORMALIZATIONS:
        raise SpeechError(
            "unsupported_parameter",
            f"text_normalization takes {' or '.join(NORMALIZATIONS)}",
            param="text_normalization",
        )
    return asked or AS_SENT
