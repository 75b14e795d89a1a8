"""How long: an answer's length, its deadline and its voice turn, by the text and by the tier."""

from __future__ import annotations

from typing import Final

from gateway.schema import MIN_AUDIO_LENGTH_MS
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact
from shared.governance.voices import VoiceProfile
from shared.messages import CONTEXT_PROMPT
from shared.speech_rate import is_speakable, wanted_ms
from shared.tiers import Tier

MIN_DEFAULT_TIMEOUT_MS: Final = 10_000
FEWEST_TOKENS: Final = 3
"""Of any text: its begin, its end, and something between."""


class Lengths:
    """The bounds of one tier, and what holds where nothing is asked. All raise SpeechError."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    def audio_ms(self, asked: int | None, text: str, param: str) -> int:
        """``param``: where ``asked`` was given."""
        if asked is None:
            return min(wanted_ms(text), self._tier.default_audio_length_ms)
        most = self._tier.max_audio_length_ms
        _check_range("invalid_max_audio_length_ms", asked, MIN_AUDIO_LENGTH_MS, most, param)
        return asked

    def check_timeout(self, asked: int | None) -> None:
        if asked is not None:
            _check_range("invalid_timeout_ms", asked, 1, self._tier.max_timeout_ms)

    def default_timeout_ms(self, audio_ms: int) -> int:
        return min(max(MIN_DEFAULT_TIMEOUT_MS, 2 * audio_ms), self._tier.max_timeout_ms)

    def check_budget(self, asked: int | None) -> None:
        if asked is not None:
            _check_range("invalid_voice_turn_budget_ms", asked, 1, self._tier.max_timeout_ms)


def check_speakable(text: str, audio_ms: int, param: str) -> None:
    """``param``: where the length is given, or would be."""
    if not is_speakable(text, audio_ms):
        raise SpeechError(
            "input_exceeds_budget",
            f"{len(text)} characters can't be spoken within {audio_ms} ms",
            param=param,
        )


def check_window(max_frames: int, policy: str, artifact: Artifact, profile: VoiceProfile) -> None:
    """The prompt must leave room for every frame: refuse at once what no text can fit.

    How many tokens a text has only its tokenizer knows, which is the worker's. What passes here
    and doesn't fit is refused there, by the same code, before its first frame.
    """
    tokens = FEWEST_TOKENS + (profile.prompt_frame_count if policy == CONTEXT_PROMPT else 0)
    if tokens >= artifact.manifest.max_seq_len - max_frames:
        raise SpeechError(
            "context_overflow", "the voice's prompt leaves no room for a text", param="input"
        )


def _check_range(code: str, asked: int, least: int, most: int, param: str | None = None) -> None:
    """Raises SpeechError(code), which names the field; ``param``: as its path, if it has one."""
    if not least <= asked <= most:
        field = code.removeprefix("invalid_")
        raise SpeechError(code, f"{field} takes {least} to {most}", param=param or field)
