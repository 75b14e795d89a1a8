"""From text and voice to the 33-lane frames that the backbone reads.

A frame is a row of 33 ids: lanes 0..31 hold one audio code each, lane 32 a text id, and a mask
says which lanes count. A segment is what one speaker said: text frames, audio frames, and one
all-zero frame that ends the audio. A prompt is context segments, then the text to speak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from tokenizers import Tokenizer  # type: ignore[import-untyped]
from tokenizers.processors import TemplateProcessing  # type: ignore[import-untyped]
from torch import Tensor

from gpu_worker.model.config import CsmConfig
from shared.errors import SpeechError
from shared.wav import CODEBOOKS

FRAME_LANES: Final = CODEBOOKS + 1
TEXT_LANE: Final = CODEBOOKS
BEGIN: Final = "<|begin_of_text|>"
END: Final = "<|end_of_text|>"


class TextTokenizer:
    """``[speaker]text`` to ids between begin and end of text.

    Text is data: a special token's name in it is encoded as the characters that it is made of.
    Raises ValueError when the tokenizer is not the one that ``config`` was made with.
    """

    def __init__(self, tokenizer: Tokenizer, config: CsmConfig) -> None:
        begin, end = tokenizer.token_to_id(BEGIN), tokenizer.token_to_id(END)
        if (begin, end) != (config.bos_id, config.eos_id):
            raise ValueError(
                f"the tokenizer has {begin} and {end} for begin and end of text, "
                f"config.json {config.bos_id} and {config.eos_id}"
            )
        added = tokenizer.get_added_tokens_decoder()
        if not {begin, end} <= added.keys() or not all(each.special for each in added.values()):
            # Only special ones are text where a caller writes their names.
            raise ValueError("the tokenizer has added tokens that are not special")
        # Not their number: a table that is read beyond its end takes the whole worker with it.
        if max(tokenizer.get_vocab().values()) >= config.text_vocab_size:
            raise ValueError("the tokenizer has ids beyond the model's text vocabulary")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.post_processor = TemplateProcessing(
            single=f"{BEGIN} $A {END}",
            pair=f"{BEGIN} $A {END} {BEGIN}:1 $B:1 {END}:1",
            special_tokens=[(BEGIN, begin), (END, end)],
        )
        self._tokenizer = tokenizer

    @classmethod
    def from_bytes(cls, data: bytes, config: CsmConfig) -> TextTokenizer:
        """From the bytes of a ``tokenizer.json``. Raises ValueError when they are none."""
        try:
            tokenizer = Tokenizer.from_str(data.decode())
        except Exception as error:  # tokenizers raises bare Exception for every malformed file
            raise ValueError(f"not a tokenizer.json: {error}") from error
        return cls(tokenizer, config)

    def encode(self, speaker: int, text: str) -> list[int]:
        """Ids of ``[speaker]text``, neither trimmed nor normalised, with begin and end.

        Raises SpeechError("csm_synthesis_failed") for a text that this tokenizer has no ids for.
        """
        try:
            ids: list[int] = self._tokenizer.encode(f"[{speaker}]{text}").ids
        except Exception:  # noqa: BLE001 - as bare as above; what it says may hold the text
            reason = "the tokenizer can't encode the text"
            raise SpeechError("csm_synthesis_failed", reason) from None
        return ids


@dataclass(frozen=True, slots=True)
class Frames:
    """Rows for the backbone. tokens: [T, 33] int64, mask: [T, 33] bool."""

    tokens: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return self.tokens.shape[0]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the backbone reads before the first generated frame.

    tokens: [T, 33] int64, mask: [T, 33] bool, with T = ``prompt_frame_count``. The first
    ``prefix_frames`` rows are the context segments, which depend on the voice alone: their keys
    and values can be computed once for a voice and copied.
    """

    tokens: Tensor
    mask: Tensor
    prefix_frames: int

    @property
    def prompt_frame_count(self) -> int:
        return self.tokens.shape[0]

    @property
    def prefix(self) -> Frames:
        return Frames(self.tokens[: self.prefix_frames], self.mask[: self.prefix_frames])

    @property
    def suffix(self) -> Frames:
        """The rows of the text to speak."""
        return Frames(self.tokens[self.prefix_frames :], self.mask[self.prefix_frames :])


def text_frames(ids: Sequence[int]) -> Frames:
    """One frame per text id: the id in lane 32, the only lane that counts."""
    tokens = torch.zeros(len(ids), FRAME_LANES, dtype=torch.int64)
    mask = torch.zeros(len(ids), FRAME_LANES, dtype=torch.bool)
    tokens[:, TEXT_LANE] = torch.tensor(ids, dtype=torch.int64)
    mask[:, TEXT_LANE] = True
    return Frames(tokens, mask)


def audio_frames(codes: Tensor) -> Frames:
    """One frame per column of codes [32, T]: lanes 0..31 count, lane 32 does not.

    Raises ValueError for another shape or a code below 0.
    """
    if codes.ndim != 2 or codes.shape[0] != CODEBOOKS:
        raise ValueError(f"audio codes are [{CODEBOOKS}, T], not {list(codes.shape)}")
    if codes.numel() and int(codes.min()) < 0:
        raise ValueError("an audio code is below 0")
    tokens = torch.zeros(codes.shape[1], FRAME_LANES, dtype=torch.int64)
    mask = torch.zeros(codes.shape[1], FRAME_LANES, dtype=torch.bool)
    tokens[:, :CODEBOOKS] = codes.T
    mask[:, :CODEBOOKS] = True
    return Frames(tokens, mask)


def join(parts: Sequence[Frames]) -> Frames:
    """The frames of all parts, one after another; no parts make no frames."""
    if not parts:
        return text_frames(())
    return Frames(torch.cat([part.tokens for part in parts]), torch.cat([p.mask for p in parts]))


def context_segment(ids: Sequence[int], codes: Tensor) -> Frames:
    """What was said before: its text, its audio [32, T], and the frame that ends the audio."""
    end = torch.zeros(CODEBOOKS, 1, dtype=torch.int64)
    return join([text_frames(ids), audio_frames(codes), audio_frames(end)])


def context_limit(max_frames: int, max_seq_len: int) -> int:
    """Prompts must stay strictly below this many frames.

    Raises SpeechError("invalid_generation_window") for a budget that leaves nothing.
    """
    if not 1 <= max_frames < max_seq_len:
        raise SpeechError(
            "invalid_generation_window", f"{max_frames} frames of {max_seq_len} can't be generated"
        )
    return max_seq_len - max_frames


def build_prompt(
    context: Sequence[Frames],
    target: Frames,
    *,
    max_frames: int,
    max_seq_len: int,
    drop_oldest: bool = False,
) -> Prompt:
    """Context segments, oldest first, then the text to speak, if it all fits the window.

    ``drop_oldest`` gives up whole segments from the oldest on; nothing is ever cut inside one.
    Raises SpeechError: ``context_overflow`` when it doesn't fit, ``invalid_generation_window``.
    """
    limit = context_limit(max_frames, max_seq_len)
    kept = list(context)
    total = sum(map(len, kept)) + len(target)
    while drop_oldest and kept and total >= limit:
        total -= len(kept.pop(0))
    if total >= limit:
        raise SpeechError(
            "context_overflow",
            f"the prompt takes {total} frames and {max_frames} are to be generated; "
            f"it must stay below {limit}",
        )
    prefix = join(kept)
    whole = join([prefix, target])
    return Prompt(whole.tokens, whole.mask, len(prefix))
