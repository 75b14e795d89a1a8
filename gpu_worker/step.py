"""Everything that happens on the device between two frames, for a fixed number of lanes.

A frame is ``speak`` (hidden state -> 32 codes -> 1920 samples) and then ``feed`` (codes -> next
hidden state). It begins at ``hidden``, so a lane joins by having its row of ``hidden`` written by a
prefill, and its first samples leave before the backbone runs again. A replayed frame is ``repeat``
and ``feed``: the same calls on the same shapes without the depth decoder, hence bitwise the same
state.

All shapes are fixed by the number of lanes, all state is allocated once and written in place, and
nothing here waits for the device: results are read by the caller. So each part can be recorded
(``record``) and repeated as one CUDA graph, or as a script on a CPU (``script``). Prefill and what
happens between steps run eagerly everywhere. One thread only, in one inference mode from
construction on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from gpu_worker.capture import Driver, Run
from gpu_worker.landing import Landing, Spoken
from gpu_worker.model.cache import KVCache, LaneChunk, LaneStep, Prefix, span_for, spans
from gpu_worker.model.csm import CsmModel
from gpu_worker.model.rotary import Turned
from gpu_worker.sampling import FEW, Draw, LaneSampling, candidates_for
from gpu_worker.script import scripted
from shared.wav import FRAME_SAMPLES


class Codec(Protocol):
    """The streaming decoder (``gpu_worker.codec.StreamingMimi``)."""

    codebook_size: int
    finite: Tensor

    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor: ...

    def reset(self, lane: int) -> None: ...


class FrameStep:
    """The device side of the engine. ``lane`` is a row, 0 .. lanes - 1.

    From its construction on the model's weights are fixed: they settle in the layout of a step.
    """

    def __init__(self, model: CsmModel, codec: Codec, lanes: int, chunk: int) -> None:
        model.settle()
        config, device, dtype = model.config, model.device, model.dtype
        self.model, self.codec, self.lanes, self.chunk = model, codec, lanes, chunk
        self.codebook_size = min(config.codebook_size, codec.codebook_size)
        self.window = config.max_seq_len
        # Room for the padding of a last chunk, and a slot no span reaches for rows that rest.
        self.cache = KVCache(config.backbone, lanes, self.window + chunk, dtype, device)
        self._depth_cache = KVCache(config.depth, lanes, config.num_codebooks, dtype, device)
        self._depth_calls = model.depth_calls(self._depth_cache)
        self._turned = Turned(config.backbone, lanes, dtype, device)
        self.sampling = LaneSampling.allocate(lanes, self.window, config.num_codebooks, device)
        self.hidden = torch.zeros((lanes, config.backbone.hidden_size), dtype=dtype, device=device)
        self.codes = torch.zeros((lanes, config.num_codebooks), dtype=torch.int64, device=device)
        self.best = torch.zeros((lanes, config.num_codebooks), device=device)
        self.position = torch.zeros(lanes, dtype=torch.int64, device=device)
        self.frame = torch.zeros(lanes, dtype=torch.int64, device=device)
        self.active = torch.zeros(lanes, dtype=torch.bool, device=device)
        self.speaking = torch.zeros_like(self.active)
        pcm = torch.zeros((lanes, FRAME_SAMPLES), dtype=torch.int16, device=device)
        results = (self.codes, pcm, torch.zeros_like(self.active), torch.ones_like(self.active))
        self.spoken = Spoken(*results, Landing(results) if self.runs_ahead else None)
        self._recorded: dict[tuple[str, int], Run] = {}
        self._scripted: dict[tuple[str, int], Run] | None = None
        self._rows = torch.arange(lanes, device=device)
        self._resting_slot = torch.full_like(self.position, self.cache.slots - 1)

    @property
    def runs_ahead(self) -> bool:
        """Whether calls return before the device is done, so that the next can be enqueued."""
        return self.model.device.type == "cuda"

    def record(self, driver: Driver) -> None:
        """Record all that a frame may be made of, with empty lanes; leaves them empty.

        A recorded step always attends to the whole window: on CUDA it is not shown that a longer
        span changes no bit. Raises RuntimeError where a part can't be recorded.
        """
        few_to_all = {candidates_for(k, self.codebook_size) for k in (1, FEW, self.codebook_size)}
        recorded: dict[tuple[str, int], Run] = {}
        for part, sizes in (
            (self._feed, [self.window]),
            (self._speak, sorted(few_to_all, reverse=True)),
            (self._repeat, [0]),
        ):
            for size in sizes:
                recorded[part.__name__, size] = driver.record(partial(part, size))
        self._recorded = recorded
        for lane in range(self.lanes):
            self.codec.reset(lane)
            self.release(lane)

    def script(self) -> None:
        """From now on repeat each part as a script, once it has run. For a CPU; lanes are empty.

        A script is written the first time and made ready the second. The backbone's is, for every
        span, at once: an answer gets to a longer one while it is being heard.
        """
        self._scripted = {}
        for span in 2 * spans(self.window):
            self.feed(span)

    def _run(self, part: Callable[[int], None], size: int) -> None:
        """What was recorded for ``size``; KeyError if nothing was: there is no slow way round."""
        key = part.__name__, size
        if self._recorded:
            self._recorded[key]()
        elif self._scripted is None:
            part(size)
        elif key in self._scripted:
            self._scripted[key]()
        else:
            self._scripted[key] = scripted(partial(part, size))

    @property
    def nbytes(self) -> int:
        """Bytes of the caches and buffers, without weights and codec."""
        buffers = (self.hidden, self.codes, self.best, self.sampling.noise)
        return (
            self.cache.nbytes + self._depth_cache.nbytes + sum(buffer.nbytes for buffer in buffers)
        )

    def join(self, lane: int, temperature: float, top_k: int, seed: int, frames: int) -> None:
        """Make an empty lane a fresh one that samples so, for at most ``frames`` frames."""
        self.codec.reset(lane)
        self.sampling.set_lane(lane, temperature, top_k, seed, frames)

    def copy_prefix(self, lane: int, prefix: Prefix) -> None:
        """Begin the lane's context with positions computed before."""
        self.cache.copy_in(lane, prefix)

    def make_prefix(self, lane: int, tokens: Tensor, mask: Tensor) -> Prefix:
        """Run frames [positions, 33] through an empty lane and keep their keys and values."""
        for start in range(0, tokens.shape[0], self.chunk):
            end = start + self.chunk
            self.prefill(lane, tokens[start:end], mask[start:end], start)
        prefix = self.cache.copy_out(lane, tokens.shape[0])
        self.release(lane)
        return prefix

    def prefill(self, lane: int, tokens: Tensor, mask: Tensor, start: int) -> None:
        """Up to ``chunk`` prompt frames [rows, 33] at positions ``start`` ..; ids and bools.

        Always runs the full chunk: rows after the last are empty frames whose keys the lane's own
        next positions overwrite. Leaves the lane ready to speak after its last row.
        """
        rows = tokens.shape[0]
        padding = (0, 0, 0, self.chunk - rows)
        tokens = torch.nn.functional.pad(tokens, padding).to(self.hidden.device)
        mask = torch.nn.functional.pad(mask, padding).to(self.hidden.device)
        positions = torch.arange(start, start + self.chunk, device=self.hidden.device)
        span = span_for(start + rows, self.window)
        attention = LaneChunk(self.cache, lane, start, self.model.rotation(positions), span)
        hidden = self.model.backbone_rows(self.model.embed_frames(tokens, mask), attention)
        self.hidden[lane].copy_(hidden[rows - 1])
        self.position[lane].fill_(start + rows)  # which waits for nothing, as an assignment would

    def speak(self, active: Tensor, candidates: int) -> Spoken:
        """The next frame of every lane where ``active`` bool [lanes].

        ``candidates`` covers every active lane's top_k (``sampling.candidates_for``).
        """
        self.active.copy_(active)
        self._run(self._speak, candidates)
        return self._land()

    def repeat(self, codes: Tensor, active: Tensor) -> Spoken:
        """Take ``codes`` [lanes, 32] as the next frame of every active lane."""
        self.codes.copy_(codes)
        self.active.copy_(active)
        self._run(self._repeat, 0)
        return self._land()

    def feed(self, span: int) -> None:
        """Put the frame of every speaking lane through the backbone.

        ``span`` covers every speaking lane's position. The other lanes rest: their state stays.
        """
        self._run(self._feed, self.window if self._recorded else span)

    def _speak(self, candidates: int) -> None:
        noise = self.sampling.noise[self._rows, self.frame]
        draw = Draw(self.sampling, noise, self.best, self.codebook_size, candidates)
        self.codes.copy_(self.model.decode_frame(self.hidden, self._depth_calls, draw))
        self.spoken.ended.copy_((self.codes == self.model.config.codebook_eos_id).all(dim=1))
        finite = torch.isfinite(self.best).all(dim=1)
        self.speaking.copy_(self.active & finite & ~self.spoken.ended)
        self._decode()
        self.spoken.finite.copy_(finite & self.codec.finite)

    def _repeat(self, _: int) -> None:
        self.spoken.ended.zero_()
        self.speaking.copy_(self.active)
        self._decode()
        self.spoken.finite.copy_(self.codec.finite)

    def _decode(self) -> None:
        self.spoken.pcm.copy_(self.codec.step(self.codes, self.speaking, check=False))

    def _feed(self, span: int) -> None:
        slot = torch.where(self.speaking, self.position, self._resting_slot)
        rotation = self.model.rotation(self.position)
        attention = LaneStep(self.cache, self._turned, rotation, slot, self.position, span)
        hidden = self.model.backbone_rows(self.model.embed_codes(self.codes), attention)
        self.hidden.copy_(torch.where(self.speaking.unsqueeze(1), hidden, self.hidden))
        self.position.add_(self.speaking)
        self.frame.add_(self.speaking)

    def _land(self) -> Spoken:
        if self.spoken.landing:
            self.spoken.landing.start()
        return self.spoken

    def release(self, lane: int) -> None:
        """Empty a lane. One that was not finite is zeroed: a mask does not hide a NaN.

        Does not wait: the backbone pass of a device that runs ahead may be under way.
        """
        finite = torch.isfinite(self.hidden[lane]).all() & torch.isfinite(self.best[lane]).all()
        for cache in (self.cache, self._depth_cache):
            cache.clear_unless(lane, finite)
        for state in (self.speaking, self.hidden, self.position, self.frame):
            state[lane].zero_()
