"""An engine that computes nothing: frames at a given pace, so that what is measured is the queue.

It stands in the place of ``gpu_worker.runtime.Runtime`` and says so in its facts. A request's
frames follow from its seed and the frame's index alone: another worker goes on with the same bits.
A text may ask for what tests need to happen, by a mark such as ``[raise 5]`` (``MARKS``).
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from dataclasses import dataclass, replace
from typing import Final

from gpu_worker.engine_thread import Command, EngineThread
from gpu_worker.facts import RuntimeFacts
from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from gpu_worker.telemetry import Usage, cpu_usage
from shared.clock import unix_ms
from shared.messages import CODES_BYTES, ERROR, LENGTH, LOADING, READY, STOP
from shared.wav import FRAME_BYTES, FRAME_SAMPLES

ENGINE: Final = "paced_no_compute"
MARKS: Final = ("eos", "nonfinite", "raise", "kill", "hang")
"""What happens in place of a frame of that index: the model ends; the row's numbers are not finite;
the step raises; the process is killed; the step never returns, as with a device that hangs."""

HELD_S: Final = 10.0
"""A step of so long is no pace but a way to hold the lanes: nobody's wait is estimated by it."""

_MARK: Final = re.compile(rf"\[({'|'.join(MARKS)}) ([0-9]{{1,4}})\]")


def codes_of(seed: int, index: int) -> bytes:
    """The 64 bytes of codes of one frame, each of Mimi's 2048."""
    digest = bytearray(hashlib.shake_128(b"codes %d %d" % (seed, index)).digest(CODES_BYTES))
    for high in range(1, CODES_BYTES, 2):
        digest[high] &= 7
    return bytes(digest)


def pcm_of(seed: int, index: int) -> bytes:
    """The samples of one frame: a soft noise, little-endian, 0 to 255."""
    pcm = bytearray(FRAME_BYTES)
    pcm[::2] = hashlib.shake_128(b"pcm %d %d" % (seed, index)).digest(FRAME_SAMPLES)
    return bytes(pcm)


@dataclass(frozen=True, slots=True)
class Row:
    """One generation in its lane, and the index of its next frame."""

    generation: Generation
    index: int
    mark: str | None
    mark_index: int

    @classmethod
    def of(cls, generation: Generation) -> Row:
        found = _MARK.search(generation.text)
        mark, at = (found[1], int(found[2])) if found else (None, 0)
        return cls(generation, len(generation.replay), mark, at)

    @property
    def due(self) -> str | None:
        """The mark that takes the place of the next frame."""
        return self.mark if self.mark and self.index >= self.mark_index else None


class PacedRuntime(EngineThread):
    """``lanes`` rows, all stepped together every ``step_ms``; 0: as fast as this process can.

    Holds no model. Every method may be called from any thread.
    """

    def __init__(self, lanes: int, step_ms: float, requested_backend: str = "cpu") -> None:
        super().__init__()
        self.step_s = step_ms / 1000
        self._facts = RuntimeFacts.not_ready(requested_backend, LOADING)
        self._lanes = lanes
        self._rows: dict[str, Row] = {}

    @property
    def facts(self) -> RuntimeFacts:
        return self._facts

    def usage(self) -> Usage:
        return cpu_usage()

    def start(self) -> None:
        pace_ms = self.step_s * 1000 if self.step_s < HELD_S else None
        self._facts = _ready(self._facts.requested_backend, self._lanes, pace_ms)
        super().start()

    def _main(self) -> None:
        """Lanes join and leave, one frame for all, wait for the next step."""
        due_at = 0.0
        while (commands := self._take_commands(wait=not self._rows)) is not None:
            for command in commands:
                self._obey(command)
            due_at = max(due_at + self.step_s, time.monotonic())
            if self._rows:
                self._emit(self._step())
            time.sleep(max(0.0, due_at + self.step_s - time.monotonic()))

    def _obey(self, command: Command) -> None:
        if isinstance(command, str):
            self._rows.pop(command, None)
            self._emit([Released(command)])
        elif (fault := _misfit(command)) is not None:
            self._emit([_ended(command.key, ERROR, 0, code=fault)])
        else:
            self._rows[command.key] = Row.of(command)

    def _step(self) -> list[Event]:
        """One frame of every lane, or an end in its place. Raises StepFailed."""
        events: list[Event] = []
        for key, row in list(self._rows.items()):
            if row.due == "raise":
                raise StepFailed
            if row.due == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            while row.due == "hang":
                time.sleep(HELD_S)
            if (end := _end(row)) is not None:
                del self._rows[key]
                events.append(end)
                continue
            seed, index = row.generation.seed, row.index
            events.append(Frame(key, index, codes_of(seed, index), pcm_of(seed, index)))
            row = replace(row, index=index + 1)
            self._rows[key] = row
            if index + 1 == row.generation.max_frames:
                del self._rows[key]
                events.append(_ended(key, LENGTH, index + 1))
        return events


class StepFailed(Exception):
    """A step that raises because a text asked for it."""


def _end(row: Row) -> Ended | None:
    key, made = row.generation.key, row.index
    if row.due == "nonfinite":
        return _ended(key, ERROR, made, code="csm_synthesis_failed")
    if row.due == "eos" and made == 0:
        return _ended(key, ERROR, 0, code="no_audio_generated")
    if row.due == "eos":
        return _ended(key, STOP, made, cause="eos")
    if made >= row.generation.max_frames:  # all of it was replayed
        return _ended(key, LENGTH, made)
    return None


def _ended(
    key: str, reason: str, frames: int, *, cause: str | None = None, code: str | None = None
) -> Ended:
    message = "" if code is None else "the paced engine was asked to fail"
    return Ended(key, reason, cause, code, message, frames, 1)


def _misfit(generation: Generation) -> str | None:
    """A replay has to be of the frames that this seed gives, else two answers would be mixed."""
    expected = (codes_of(generation.seed, index) for index in range(len(generation.replay)))
    return None if tuple(expected) == generation.replay else "csm_synthesis_failed"


def _ready(requested: str, lanes: int, pace_ms: float | None) -> RuntimeFacts:
    return replace(
        RuntimeFacts.not_ready(requested, READY),
        backend="cpu",
        execution_engine=ENGINE,
        residency="no_model",
        loaded_at_unix_ms=unix_ms(),
        load_latency_ms=0,
        lanes=lanes,
        determinism_class=ENGINE,
        memory_required_bytes=0,
        warm_step_ms=pace_ms,
    )
