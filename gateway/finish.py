"""How a job finished: audio that may be handed over, or the failure that is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.runtime import Served
from shared.digests import Pcm16Digest
from shared.errors import CODES, SpeechError
from shared.messages import CANCELLED, LENGTH, STOP, TIMEOUT, WORKER_LOST, End, Terminal
from shared.wav import FRAME_MS

AT_FAULT: Final = {"context_overflow": "input"}
"""The field at fault where a worker refuses a request."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A job that ended with audio, and its worker's statement."""

    end: End
    terminal: Terminal

    @property
    def duration_ms(self) -> int:
        return self.terminal.generated_frame_count * FRAME_MS

    @property
    def served(self) -> Served:
        return Served.by(self.terminal)


def failure_of(end: End) -> SpeechError | None:
    """The failure that an end means to a caller who is still here; None for audio."""
    reason = end.finish_reason
    if reason in (STOP, LENGTH):
        return None
    if reason == CANCELLED:
        if end.abandoned:
            # This caller did not leave: its membership lapsed while Redis could not be reached.
            return SpeechError(
                "queue_unavailable", "the queue took this caller for gone", retry_after_s=1.0
            )
        return SpeechError("cancelled", "the request was cancelled")
    code = end.failure_code or {WORKER_LOST: WORKER_LOST, TIMEOUT: "generation_timeout"}.get(reason)
    if code not in CODES:
        return SpeechError("internal_error", "the job ended for a reason that is not known")
    return SpeechError(code, end.message or code.replace("_", " "), param=AT_FAULT.get(code))


class Tally:
    """Counts and digests the samples that pass, to hold them against the worker's statement."""

    def __init__(self) -> None:
        self.frames = 0
        self._digest = Pcm16Digest()

    def take(self, pcm: bytes) -> None:
        self.frames += 1
        self._digest.update(pcm)

    def finish(self, end: End, *, replayed: bool = False) -> Finish:
        """The finish of a job whose every frame passed. Raises SpeechError otherwise."""
        failure = failure_of(end)
        if failure is not None:
            raise failure
        terminal = end.terminal
        if terminal is None:
            raise SpeechError("internal_error", "the worker's statement could not be read")
        if replayed and self.frames < terminal.generated_frame_count:
            raise SpeechError("queue_unavailable", "the audio is no longer kept", retry_after_s=1.0)
        if self.frames == 0:
            raise SpeechError("no_audio_generated", "the model ended before the first frame")
        if self.frames != terminal.generated_frame_count or not self._agrees(terminal):
            raise SpeechError("internal_error", "the audio is not what its worker states")
        return Finish(end, terminal)

    def _agrees(self, terminal: Terminal) -> bool:
        return terminal.pcm16_sha256 == str(self._digest)
