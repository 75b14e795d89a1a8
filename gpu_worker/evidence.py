"""What was delivered of one answer, and what its digests say about the whole of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.digests import CodebookDigest, Pcm16Digest, wav_pcm16_digest
from shared.messages import FrameRecord, Terminal

if TYPE_CHECKING:
    from gpu_worker.facts import RuntimeFacts


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended; fields as in :class:`shared.messages.Terminal`."""

    finish_reason: str
    stop_cause: str | None = None
    failure_code: str | None = None
    message: str = ""
    prompt_frame_count: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a generation ran: part of every terminal of one worker."""

    worker_id: str
    runtime_image_ref: str


class Evidence:
    """The frames that are on the job's stream, those of earlier attempts included."""

    def __init__(self, delivered: Iterable[FrameRecord] = ()) -> None:
        self._codes = CodebookDigest()
        self._samples = Pcm16Digest()
        self._pcm: list[bytes] = []
        for frame in delivered:
            self.add(frame)

    @property
    def frames(self) -> int:
        return len(self._pcm)

    def add(self, frame: FrameRecord) -> None:
        """Count the next frame. Raises ValueError for codes that are no whole frame."""
        self._codes.update(frame.codes)
        self._samples.update(frame.pcm)
        self._pcm.append(frame.pcm)

    def terminal(self, outcome: Outcome, facts: RuntimeFacts, origin: Origin) -> Terminal:
        """The worker's statement about the answer as delivered."""
        return Terminal(
            finish_reason=outcome.finish_reason,
            stop_cause=outcome.stop_cause,
            failure_code=outcome.failure_code,
            message=outcome.message,
            generated_frame_count=self.frames,
            prompt_frame_count=outcome.prompt_frame_count,
            codebook_frames_sha256=str(self._codes) if self.frames else None,
            pcm16_sha256=str(self._samples) if self.frames else None,
            wav_pcm16_digest=wav_pcm16_digest(self._pcm) if self.frames else None,
            worker_id=origin.worker_id,
            requested_backend=facts.requested_backend,
            backend=facts.backend,
            execution_engine=facts.execution_engine,
            residency=facts.residency,
            accelerated_backend=facts.accelerated_backend,
            gpu_model=facts.gpu_model,
            cpu_fallback_reason=facts.cpu_fallback_reason,
            runtime_image_ref=origin.runtime_image_ref,
            determinism_class=facts.determinism_class,
        )
