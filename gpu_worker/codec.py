"""Mimi, streamed: one 80 ms frame of codes in, 1920 samples out, for a fixed number of lanes.

Built from moshi's modules. Only the decoding half is streamed and it is composed here instead of
calling ``MimiModel.decode``, which would bring moshi's own CUDA graphs, one execution mask per
module and the encoder's caches. The samples are the same, to the rounding of the transformer
(``gpu_worker.codec_transformer``), whose products go through oneDNN on a CPU so that every lane has
the same, and of the sum of the 32 codes' entries.

One frame a call, always: Mimi's attention window is 250 positions, and beyond it the result would
depend on how many frames a call carries. So one-frame calls define a request's PCM.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor

# Read by moshi when it is imported: its rotary embedding would otherwise be compiled by Triton at
# the first call, in the middle of serving.
os.environ.setdefault("NO_TORCH_COMPILE", "1")

from moshi.models import loaders
from torch.nn import init
from torch.overrides import TorchFunctionMode

from gpu_worker.codec_layout import entries_of
from gpu_worker.codec_transformer import CodecTransformer
from gpu_worker.model.even import evenly
from shared.wav import CODEBOOKS, FRAME_SAMPLES

DECODING: Final = ("decoder.", "decoder_transformer.", "quantizer.", "upsample.")
"""Prefixes of the weights that decoding needs."""
ENCODER_PARTS: Final = ("encoder", "encoder_transformer", "downsample")
RANDOM_FILLS: Final = (init.kaiming_uniform_, init.uniform_)


def default_mimi_config() -> dict[str, Any]:
    """The dimensions of the published Mimi, in the form that ``build_mimi`` takes."""
    return dict(loaders._mimi_config)


def mimi_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every weight of a Mimi of that configuration, by moshi's name, with its shape."""
    return {name: tuple(each.shape) for name, each in _empty_mimi(config).state_dict().items()}


def _empty_mimi(config: dict[str, Any]) -> Any:
    """A Mimi whose weights have shapes and no memory."""
    with torch.device("meta"), _Unfilled():
        return loaders.get_mimi(None, config, device="meta", num_codebooks=CODEBOOKS)


class _Unfilled(TorchFunctionMode):
    """Draws no random numbers for weights that a file's replace.

    Without memory to fill, torch would do so symbolically, and import some 70 MB for it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        return given["tensor"] if func in RANDOM_FILLS else func(*args, **given)


def build_mimi(
    config: dict[str, Any],
    weights: dict[str, Tensor],
    device: torch.device | str = "cpu",
    *,
    decode_only: bool = True,
) -> Any:
    """A ``moshi.models.MimiModel`` in float32 with these weights, frozen, in eval mode.

    ``decode_only`` leaves the encoder out. Weights that are on the device and float32 already are
    taken as they are, not copied. Raises KeyError, TypeError, ValueError or RuntimeError when
    configuration and weights don't make one Mimi.
    """
    mimi = _empty_mimi(config)
    if decode_only:
        for part in ENCODER_PARTS:
            setattr(mimi, part, torch.nn.Identity())
        weights = {name: each for name, each in weights.items() if name.startswith(DECODING)}
    mimi.load_state_dict(
        {name: each.to(device, torch.float32) for name, each in weights.items()}, assign=True
    )
    if mimi.frame_size != FRAME_SAMPLES:
        raise ValueError(f"this Mimi makes {mimi.frame_size} samples a frame, not {FRAME_SAMPLES}")
    return mimi.requires_grad_(False).eval()


def pcm16(wave: Tensor) -> Tensor:
    """Samples in [-1, 1], float32 of any shape, as int16: x 32767, halves away from zero.

    What is outside is clamped, NaN becomes 0, and -1.0 becomes -32767.
    """
    scaled = torch.nan_to_num(wave, nan=0.0).clamp(-1.0, 1.0) * 32767.0
    whole = scaled.trunc()
    # The difference is exact, where adding 0.5 first could already round.
    away = ((scaled - whole).abs() >= 0.5).to(scaled.dtype) * scaled.sign()
    return (whole + away).to(torch.int16)


def check_codes(codes: Tensor, codebook_size: int) -> None:
    """Raises ValueError for a code that the codec has no entry for.

    Such a code is an IndexError on a CPU and kills the whole process on CUDA, so codes that come
    from outside (a prompt, a replay) pass here first. Waits for the device.
    """
    if codes.numel() and not bool(((codes >= 0) & (codes < codebook_size)).all()):
        raise ValueError(f"a code is outside 0..{codebook_size - 1}")


class StreamingMimi:
    """The decoding half of a Mimi with ``lanes`` independent streams.

    A lane's samples depend on its own codes and on the number of lanes, and on nothing else: not
    on its neighbours, its place, or on pauses. One thread only. A Mimi has one set of streams at a
    time; ``close`` ends them.
    """

    def __init__(self, mimi: Any, lanes: int) -> None:
        self.lanes = lanes
        self.codebook_size = int(mimi.cardinality)
        self._mimi = mimi
        self._open = ExitStack()
        _treat_every_row_alike(mimi)
        # Plain tensors, so that they may be written in inference mode as well as outside it.
        with torch.inference_mode(False), torch.no_grad():
            states = [state for part in self._parts() for state in self._start(part)]
            quantizer = mimi.quantizer
            self._sums = [_EntrySum(part) for part in (quantizer.rvq_first, quantizer.rvq_rest)]
            device = self._sums[0].entries.device
            self._transformer = CodecTransformer(
                mimi.decoder_transformer, lanes, _positions_per_frame(mimi), device
            )
            self._active = torch.ones(lanes, dtype=torch.bool, device=device)
            self.finite = torch.ones(lanes, dtype=torch.bool, device=device)
            """[lanes]: whether the last step's samples of each lane were all finite."""
        for state in states:
            state.exec_mask = self._active
        self.by_lane = [tensor for state in states for tensor in _lane_first(state)]
        self.by_lane += self._transformer.tensors
        """All that a frame changes, with the lane as first axis: zeroed, a lane is fresh."""

    @property
    def nbytes(self) -> int:
        """Bytes of the streams, without the Mimi's weights."""
        return sum(tensor.nbytes for tensor in self.by_lane)

    def _parts(self) -> tuple[Any, ...]:
        return (self._mimi.upsample.convtr, self._mimi.decoder)

    def _start(self, part: Any) -> list[Any]:
        self._open.enter_context(part.streaming(self.lanes))
        return list(part.get_streaming_state().values())

    @torch.no_grad()
    def step(self, codes: Tensor, active: Tensor, *, check: bool = True) -> Tensor:
        """One frame for every active lane.

        codes: [lanes, 32] int64, active: [lanes] bool; returns [lanes, 1920] int16, zero where not
        active. An inactive lane is paused: its codes are ignored and its stream does not move.
        Raises ValueError for a code outside the codebook. ``check=False`` skips that, and with it
        the wait for the device, for codes that a sampler has already bounded.
        """
        codes = codes.masked_fill(~active[:, None], 0)
        if check:
            check_codes(codes, self.codebook_size)
        self._active.copy_(active)
        wave = self._decode(codes)
        self.finite.copy_(torch.isfinite(wave).all(dim=-1) | ~active)
        return pcm16(wave).masked_fill(~active[:, None], 0)

    def _decode(self, codes: Tensor) -> Tensor:
        """[lanes, 32] codes to [lanes, 1920] float32 samples."""
        first, rest = self._sums
        latent = first(codes[:, : first.count]) + rest(codes[:, first.count :])
        hidden = self._transformer(self._mimi.upsample(latent), self._active)
        wave: Tensor = self._mimi.decoder(hidden)
        return wave[:, 0]

    @torch.no_grad()
    def reset(self, lane: int) -> None:
        """Makes the lane a fresh stream, as if the process had just started.

        Also clears its attention ring: moshi's own reset only moves the write position, and a NaN
        left in the ring would reach every later step, since 0 x NaN is NaN.
        """
        for tensor in self.by_lane:
            tensor[lane].zero_()

    def close(self) -> None:
        """Ends the streams and frees their buffers; the Mimi may then be streamed anew."""
        self._open.close()
        self.by_lane = []


class _EntrySum:
    """The entries that a frame's codes name, summed and projected, from one table of them all."""

    def __init__(self, part: Any) -> None:
        self.count = len(part.vq.layers)
        self.entries = entries_of(part)
        self._offsets = torch.arange(self.count, device=self.entries.device)
        self._offsets *= len(self.entries) // self.count
        self._project = part.output_proj

    def __call__(self, codes: Tensor) -> Tensor:
        """[lanes, count] -> [lanes, dim, 1]."""
        entries = torch.embedding(self.entries, codes + self._offsets)
        projected: Tensor = self._project(entries.sum(dim=1).unsqueeze(2))
        return projected


class _EvenLinear(torch.nn.Linear):
    """A linear layer through oneDNN, on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            input, self.weight, self.bias, "none", [], ""
        )
        return product


class _EvenElu(torch.nn.ELU):
    def forward(self, input: Tensor) -> Tensor:
        return evenly(super().forward, input)


def _treat_every_row_alike(mimi: Any) -> None:
    """Keeps MKL out, which with two threads sums some of 6 or 10 rows in an order of their own."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    for module in mimi.decoder_transformer.modules():
        if has_onednn and type(module) is torch.nn.Linear and module.weight.device.type == "cpu":
            module.__class__ = _EvenLinear
    for module in mimi.decoder.modules():
        if type(module) is torch.nn.ELU:
            module.__class__ = _EvenElu


def _positions_per_frame(mimi: Any) -> int:
    """What ``upsample`` makes of one frame."""
    return int(mimi.upsample.convtr.convtr.convtr.stride[0])


def _lane_first(state: Any) -> list[Tensor]:
    """Every tensor of a streaming state that a frame changes, with the lane as first axis."""
    return [
        tensor
        for name in ("previous", "partial")
        if isinstance(tensor := getattr(state, name, None), Tensor)
    ]
