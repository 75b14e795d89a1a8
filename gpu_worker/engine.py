"""The engine: lanes that join, speak and leave at frame boundaries. Knows no queue.

``tick`` is the whole loop body. Between two of them the caller submits and stops; inside, at most
one prefill chunk and a few replayed frames come before the frame of all speaking lanes, so that a
newcomer never stalls them for longer. One thread only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu_worker.generation import Ended, Event, Frame, Generation, Released
from gpu_worker.landing import Spoken
from gpu_worker.lane import Lane
from gpu_worker.model.cache import Prefix, span_for
from gpu_worker.prompt import Prompt
from gpu_worker.sampling import candidates_for, is_greedy
from gpu_worker.step import FrameStep
from shared.errors import SpeechError
from shared.messages import CODES_BYTES, ERROR, MAX_SEED
from shared.wav import CODEBOOKS

REPLAYED_PER_TICK: Final = 4
"""Replayed frames between two frames of the others; each costs a backbone pass and a decode."""

Emit = Callable[[list[Event]], None]


class Engine:
    """Drives a ``FrameStep``.

    ``build`` makes the prompt of a generation or refuses it with a SpeechError. ``prefixes`` holds
    the context of every voice that has one, computed once; its rows are those of the prompt's
    ``prefix``.
    """

    def __init__(
        self,
        step: FrameStep,
        build: Callable[[Generation], Prompt],
        prefixes: Mapping[str, Prefix],
    ) -> None:
        self._step, self._build, self._prefixes = step, build, prefixes
        self._lanes: list[Lane | None] = [None] * step.lanes
        self._arrivals: deque[Lane] = deque()
        self._outbox: list[Event] = []
        self._masked: tuple[list[bool], Tensor] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether a tick would do nothing."""
        return not self._outbox and not any(self._lanes)

    def submit(self, generation: Generation) -> None:
        """Take a free lane, or end the generation with its refusal at the next tick."""
        try:
            lane = self._admit(generation, self._lanes.index(None))
        except SpeechError as refusal:
            code, message = refusal.code, refusal.message
            self._outbox.append(Ended(generation.key, ERROR, None, code, message, 0, 0))
        else:
            self._lanes[lane.index] = lane
            self._arrivals.append(lane)

    def stop(self, key: str) -> None:
        """Free the lane of ``key``, if it has one; answered with ``Released`` either way."""
        for lane in self._occupied():
            if lane.generation.key == key:
                self._free(lane)
        self._outbox.append(Released(key))

    def tick(self, emit: Emit) -> None:
        """schedule -> step -> collect. Emits each step's events as one batch, at once.

        A device that runs ahead gets the backbone pass before its results are awaited. A lane that
        turns out to have ended is then fed once more, in vain and unseen.
        """
        self._prefill_chunk()
        self._replay_frames()
        speaking = [lane for lane in self._occupied() if lane.is_speaking]
        if speaking:
            spoken = self._step.speak(self._mask(speaking), self._candidates(speaking))
            if self._step.runs_ahead:
                self._feed(speaking, 1)
            self._outbox += self._collect(speaking, spoken)
        if self._outbox:
            events, self._outbox = self._outbox, []
            emit(events)
        if not self._step.runs_ahead:
            self._feed(lane for lane in speaking if self._lanes[lane.index] is lane)

    def _admit(self, generation: Generation, index: int) -> Lane:
        _check(generation)
        prompt = self._build(generation)
        replay = _replayed(generation, self._step.codebook_size)
        g = generation
        self._step.join(index, g.temperature, g.top_k, g.seed, g.max_frames)
        if prompt.prefix_frames:
            self._step.copy_prefix(index, self._prefixes[g.voice_profile_id])
        return Lane(index, generation, prompt, replay)

    def _prefill_chunk(self) -> None:
        """One chunk of the lane that came first."""
        if not self._arrivals:
            return
        lane = self._arrivals[0]
        done, suffix = lane.prefilled, lane.prompt.suffix
        rows = slice(done, done + self._step.chunk)
        tokens, mask = suffix.tokens[rows], suffix.mask[rows]
        self._step.prefill(lane.index, tokens, mask, lane.prompt.prefix_frames + done)
        lane.prefilled += tokens.shape[0]
        if not lane.is_prefilling:
            self._arrivals.popleft()

    def _replay_frames(self) -> None:
        for _ in range(REPLAYED_PER_TICK):
            replaying = [lane for lane in self._occupied() if lane.is_replaying]
            if not replaying:
                return
            codes = torch.zeros_like(self._step.codes)
            for lane in replaying:
                codes[lane.index] = torch.from_numpy(lane.replay[lane.frames])
            spoken = self._step.repeat(codes, self._mask(replaying))
            events = self._collect(replaying, spoken)
            self._outbox += [event for event in events if not isinstance(event, Frame)]
            self._feed(lane for lane in replaying if self._lanes[lane.index] is lane)

    def _feed(self, lanes: Iterable[Lane], uncounted: int = 0) -> None:
        """``uncounted`` frames of these lanes were spoken and not collected yet."""
        positions = [lane.prompt.prompt_frame_count + lane.frames + uncounted for lane in lanes]
        if positions:
            self._step.feed(span_for(max(positions), self._step.window))

    def _collect(self, lanes: Sequence[Lane], spoken: Spoken) -> list[Event]:
        """What this frame means for each of ``lanes``. Waits for the device."""
        spoken = spoken.on_host()
        ended, finite = spoken.ended.tolist(), spoken.finite.tolist()
        codes = spoken.codes.numpy().astype("<u2")
        pcm = spoken.pcm.numpy().astype("<i2", copy=False)
        events: list[Event] = []
        end: Ended | None
        for lane in lanes:
            row = lane.index
            if not finite[row]:
                end = lane.failed("csm_synthesis_failed", "the row is not finite")
            elif ended[row]:
                end = lane.at_end_frame()
            else:
                data = codes[row].tobytes(), pcm[row].tobytes()
                events.append(Frame(lane.generation.key, lane.frames, *data))
                end = lane.at_frame(pcm[row])
            if end is not None:
                self._free(lane)
                events.append(end)
        return events

    def _free(self, lane: Lane) -> None:
        self._lanes[lane.index] = None
        if lane in self._arrivals:
            self._arrivals.remove(lane)
        self._step.release(lane.index)

    def _occupied(self) -> list[Lane]:
        return [lane for lane in self._lanes if lane is not None]

    def _mask(self, lanes: Iterable[Lane]) -> Tensor:
        """On the device; the last one again if the lanes are the same. To put another one there
        waits for all that the device has been given, the backbone pass of the last frame included.
        """
        wanted = {lane.index for lane in lanes}
        rows = [index in wanted for index in range(self._step.lanes)]
        if self._masked is None or self._masked[0] != rows:
            self._masked = rows, torch.tensor(rows, device=self._step.speaking.device)
        return self._masked[1]

    def _candidates(self, lanes: Iterable[Lane]) -> int:
        wanted = (
            1 if is_greedy(g.temperature, g.top_k) else g.top_k
            for g in (lane.generation for lane in lanes)
        )
        return candidates_for(max(wanted), self._step.codebook_size)


def _check(generation: Generation) -> None:
    """Refuse what would otherwise fail in the middle of a step."""
    if not (math.isfinite(generation.temperature) and generation.temperature >= 0):
        raise SpeechError("unsupported_sampling", "temperature is not a finite number from 0 on")
    if generation.top_k < 1:
        raise SpeechError("unsupported_sampling", "top_k is below 1")
    if not 0 <= generation.seed <= MAX_SEED:
        raise SpeechError("invalid_seed", f"seed is not in 0..{MAX_SEED}")


def _replayed(generation: Generation, codebook_size: int) -> NDArray[np.int64]:
    """The delivered codes, int64 [frames, 32]; SpeechError if they can't be this model's."""
    frames = generation.replay
    if any(len(frame) != CODES_BYTES for frame in frames) or len(frames) > generation.max_frames:
        raise SpeechError("csm_synthesis_failed", "the delivered frames don't fit this request")
    codes = np.frombuffer(b"".join(frames), dtype="<u2").reshape(-1, CODEBOOKS)
    if codes.size and (int(codes.max()) >= codebook_size or not codes.any(axis=1).all()):
        raise SpeechError("csm_synthesis_failed", "a delivered frame is not this model's")
    return codes.astype(np.int64)
