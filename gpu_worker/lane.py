"""One generation in its row of the batch: how far it is, and what of it means that it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpu_worker.generation import Ended, Generation
from gpu_worker.prompt import Prompt
from shared.messages import ERROR, LENGTH, STOP
from shared.speech_rate import LEAD_IN_MS
from shared.wav import FRAME_MS

QUIET_PEAK: Final = 164
"""A frame is near-silent if no sample is louder: 0.5 % of full scale, -46 dBFS."""
LEAD_IN_FRAMES: Final = LEAD_IN_MS // FRAME_MS
"""Speech may begin so late: that a row which was let no longer is silent says nothing."""


@dataclass(slots=True, eq=False)
class Lane:
    """A generation in row ``index``. ``replay``: codes int64 [frames, 32] that were delivered.

    ``prefilled`` counts positions of the prompt's own part, ``frames`` those that were spoken or
    replayed, ``quiet`` the last of them that were near-silent in a row.
    """

    index: int
    generation: Generation
    prompt: Prompt
    replay: NDArray[np.int64]
    prefilled: int = 0
    frames: int = 0
    quiet: int = 0

    @property
    def is_prefilling(self) -> bool:
        return self.prefilled < len(self.prompt.suffix)

    @property
    def is_replaying(self) -> bool:
        return not self.is_prefilling and self.frames < len(self.replay)

    @property
    def is_speaking(self) -> bool:
        return not self.is_prefilling and self.frames >= len(self.replay)

    @property
    def is_unheard(self) -> bool:
        """Whether every frame so far was near-silent, those of a replay included."""
        return self.quiet == self.frames

    def at_frame(self, pcm: NDArray[Any]) -> Ended | None:
        """Count a frame of samples int16 [1920]; the end of the row if the frame completes it.

        Silence is not looked for inside a replay: what was delivered did not end.
        """
        self.frames += 1
        self.quiet = self.quiet + 1 if np.abs(pcm.astype(np.int32)).max() <= QUIET_PEAK else 0
        if self.frames >= self.generation.max_frames:
            is_cut_early = self.frames <= LEAD_IN_FRAMES
            return self._ended(LENGTH) if is_cut_early else self._completed(LENGTH)
        limit = self.generation.silence_stop_frames
        if limit and self.quiet >= limit and self.frames >= len(self.replay):
            return self._completed(STOP, "silence")
        return None

    def at_end_frame(self) -> Ended:
        """The all-zero frame is the model's word for the end; it is no speech and not counted."""
        if self.frames == 0:
            return self.failed("no_audio_generated", "the model ended before its first frame")
        return self._completed(STOP, "eos")

    def failed(self, code: str, message: str) -> Ended:
        return self._end(ERROR, None, code, message)

    def _completed(self, reason: str, cause: str | None = None) -> Ended:
        """The end of a row that its model or its budget completed: a success only if it was
        heard.
        """
        if self.is_unheard:
            return self.failed("no_audio_generated", "the model said nothing but silence")
        return self._ended(reason, cause)

    def _ended(self, reason: str, cause: str | None = None) -> Ended:
        return self._end(reason, cause, None, "")

    def _end(self, reason: str, cause: str | None, code: str | None, message: str) -> Ended:
        prompt = self.prompt.prompt_frame_count
        return Ended(self.generation.key, reason, cause, code, message, self.frames, prompt)
