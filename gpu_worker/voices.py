"""A governed voice's prompt, as the model takes it: its codes read, verified and made frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpu_worker.model.weights import BadFile, parse_safetensors, read_verified
from gpu_worker.prompt import Frames, TextTokenizer, context_segment
from shared.digests import prompt_tokens_sha256, transcript_sha256
from shared.errors import SpeechError
from shared.governance.artifacts import Artifact
from shared.governance.voices import MISMATCH, PromptSource, VoiceProfile
from shared.messages import CONTEXT_NONE, CONTEXT_PROMPT
from shared.wav import CODEBOOKS

MISSING = "voice_profile_source_unavailable"
CODES_TENSOR = "codes"


@dataclass(frozen=True, slots=True)
class VoicePrompt:
    """One profile's context segment. codes: [32, T] int64."""

    profile_id: str
    speaker: int
    codes: Tensor
    segment: Frames


def load_voice_prompts(
    artifact: Artifact, tokenizer: TextTokenizer, codebook_size: int
) -> dict[str, VoicePrompt]:
    """The prompt of every profile that has one, by profile id.

    Raises SpeechError: ``voice_profile_source_unavailable`` for a file that is not there,
    ``voice_profile_digest_mismatch`` for one that is not the governed prompt.
    """
    return {
        profile.profile_id: load_voice_prompt(artifact, profile, tokenizer, codebook_size)
        for profile in artifact.voices.profiles
        if profile.prompt is not None
    }


def load_voice_prompt(
    artifact: Artifact, profile: VoiceProfile, tokenizer: TextTokenizer, codebook_size: int
) -> VoicePrompt:
    """One profile's prompt; raises as ``load_voice_prompts``, also for a profile without one."""
    source = profile.prompt
    if source is None:
        raise SpeechError(MISSING, f"{profile.profile_id} has no prompt")
    try:
        codes = _read_codes(artifact, source)
        _check(profile, source, codes, codebook_size)
    except BadFile as error:
        raise SpeechError(MISMATCH, f"{profile.profile_id}: {source.file}: {error}") from error
    except OSError as error:
        raise SpeechError(MISSING, f"{source.file}: {error.strerror}") from error
    segment = context_segment(tokenizer.encode(profile.speaker, source.transcript), codes)
    if len(segment) != profile.prompt_frame_count:
        raise SpeechError(
            MISMATCH,
            f"{profile.profile_id}: its prompt takes {len(segment)} frames, "
            f"its manifest says {profile.prompt_frame_count}",
        )
    return VoicePrompt(profile.profile_id, profile.speaker, codes, segment)


def context_of(
    voices: dict[str, VoicePrompt], profile_id: str, context_policy: str
) -> Sequence[Frames]:
    """The context segments that a policy asks for: none, or the profile's own.

    Raises SpeechError: ``prompt_profile_context_unavailable``, ``invalid_context_policy``.
    """
    if context_policy == CONTEXT_NONE:
        return ()
    if context_policy != CONTEXT_PROMPT:
        raise SpeechError("invalid_context_policy", "context_policy is none or prompt_profile_only")
    if profile_id not in voices:
        raise SpeechError(
            "prompt_profile_context_unavailable", "the profile's prompt codebooks are not loaded"
        )
    return (voices[profile_id].segment,)


def _read_codes(artifact: Artifact, source: PromptSource) -> Tensor:
    entry = artifact.manifest.files[source.file]
    path: Path = artifact.directory / source.file
    tensors = parse_safetensors(read_verified(path, entry.sha256, entry.bytes))
    codes = tensors.get(CODES_TENSOR)
    if codes is None or codes.is_floating_point() or codes.dtype == torch.bool:
        raise BadFile(f"it holds no integer tensor {CODES_TENSOR!r}")
    return codes.to(torch.int64)


def _check(profile: VoiceProfile, source: PromptSource, codes: Tensor, codebook_size: int) -> None:
    if tuple(codes.shape) != (CODEBOOKS, source.audio_frame_count):
        raise BadFile(f"its codes are {list(codes.shape)}")
    if int(codes.min()) < 0 or int(codes.max()) >= codebook_size:
        raise BadFile(f"a code is outside 0..{codebook_size - 1}")
    if prompt_tokens_sha256(codes.tolist()) != profile.prompt_codebook_tokens_sha256:
        raise BadFile("its codes have another digest than prompt_codebook_tokens_sha256")
    if transcript_sha256(source.transcript) != profile.prompt_transcript_sha256:
        raise BadFile("its transcript has another digest than prompt_transcript_sha256")
