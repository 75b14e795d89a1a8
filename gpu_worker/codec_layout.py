"""Mimi's large layers as products by reordered matrices, for one frame at a time on a CPU.

moshi's modules stay as they are, with their streaming state; only the innermost torch layers are
replaced. Torch's convolutions reorder 100 MB of weights in every call, or do without and are slower
still: with 2 to 16 positions a call, reading weights is all that counts. Sums run in another order
than torch's, so samples differ in the last bits from those of the untouched modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpu_worker.model.products import Reordered, is_worth_reordering


def settle_mimi(mimi: Any) -> None:
    """Replace what is worth it in the decoding half; each weight then exists in one layout only."""
    for part in (mimi.upsample, mimi.decoder_transformer, mimi.decoder):
        for module in list(part.modules()):
            for name, layer in list(module.named_children()):
                if settled := _settled(layer):
                    setattr(module, name, settled)
    for part in (mimi.quantizer.rvq_first, mimi.quantizer.rvq_rest):
        _settle_entries(part)


def entries_of(part: Any) -> Tensor:
    """All entries of a residual quantizer's codebooks in one table, [codebooks x size, dim].

    That of a settled Mimi; of another, a new one.
    """
    if hasattr(part, "entries"):
        table: Tensor = part.entries
        return table
    return _table(part)


def _table(part: Any) -> Tensor:
    layers = part.vq.layers
    first: Tensor = layers[0].embedding
    table = first.new_empty((len(layers), *first.shape))
    for rows, layer in zip(table, layers, strict=True):
        rows.copy_(layer.embedding)
        layer._codebook._embedding = None  # moshi's own copy, made at its first use
    return table.flatten(0, 1)


def _settle_entries(part: Any) -> None:
    """One table, of which each codebook's own entries are rows from here on."""
    part.register_buffer("entries", _table(part), persistent=False)
    layers = part.vq.layers
    for rows, layer in zip(part.entries.chunk(len(layers)), layers, strict=True):
        book = layer._codebook
        # What moshi would divide one by the other.
        book.embedding_sum, book.cluster_usage = rows, torch.ones_like(book.cluster_usage)


def mimi_bytes(mimi: Any) -> int:
    """Bytes of all weights, in whichever layout."""
    named: int = sum(tensor.nbytes for tensor in mimi.state_dict().values())
    return named + sum(
        layer.product.nbytes
        for layer in mimi.modules()
        if isinstance(layer, SettledLinear | SettledConv | SettledConvTranspose)
    )


def _settled(layer: nn.Module) -> nn.Module | None:
    if isinstance(layer, nn.Linear) and is_worth_reordering(layer.weight):
        return SettledLinear(layer)
    if isinstance(layer, nn.Conv1d) and _is_plain(layer) and is_worth_reordering(layer.weight):
        return SettledConv(layer)
    if isinstance(layer, nn.ConvTranspose1d) and _is_overlapping(layer):
        if layer.groups == layer.in_channels == layer.out_channels and layer.weight.is_cpu:
            return DepthwiseConvTranspose(layer)
        if layer.groups == 1 and is_worth_reordering(layer.weight):
            return SettledConvTranspose(layer)
    return None


def _is_plain(layer: nn.Conv1d) -> bool:
    numbers = (layer.stride, layer.dilation, layer.padding, (layer.groups,))
    return numbers == ((1,), (1,), (0,), (1,))


def _is_overlapping(layer: nn.ConvTranspose1d) -> bool:
    """Whether each output is the sum of at most two neighbours' kernels, as everywhere in Mimi."""
    numbers = (layer.dilation, layer.padding, layer.output_padding)
    return numbers == ((1,), (0,), (0,)) and layer.kernel_size[0] == 2 * layer.stride[0]


def _leave(layer: nn.Module, weight: Tensor) -> None:
    """Keep of a weight what moshi asks for when it makes a streaming state: dtype and device."""
    layer.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)


class SettledLinear(nn.Linear):
    """[..., in] -> [..., out]."""

    def __init__(self, layer: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.bias = layer.bias
        self.product = Reordered(layer.weight.detach())
        _leave(self, layer.weight)

    def forward(self, input: Tensor) -> Tensor:
        rows = self.product(input.reshape(-1, self.in_features))
        if self.bias is not None:
            rows = rows + self.bias
        return rows.view(*input.shape[:-1], self.out_features)


class SettledConv(nn.Conv1d):
    """[lanes, in, time] -> [lanes, out, time - kernel + 1]: windows times kernels."""

    def __init__(self, layer: nn.Conv1d) -> None:
        nn.Module.__init__(self)
        self.in_channels, self.out_channels = layer.in_channels, layer.out_channels
        self.kernel_size, self.stride, self.dilation = layer.kernel_size, (1,), (1,)
        self.bias = layer.bias
        self.product = Reordered(layer.weight.detach().flatten(1))
        _leave(self, layer.weight)

    def forward(self, input: Tensor) -> Tensor:
        lanes, size = input.shape[0], self.in_channels * self.kernel_size[0]
        windows = input.unfold(2, self.kernel_size[0], 1).transpose(1, 2)
        rows = self.product(windows.reshape(-1, size))
        if self.bias is not None:
            rows = rows + self.bias
        return rows.view(lanes, -1, self.out_channels).transpose(1, 2)


class SettledConvTranspose(nn.ConvTranspose1d):
    """[lanes, in, time] -> [lanes, out, (time + 1) x stride]: kernels times rows, overlapped."""

    def __init__(self, layer: nn.ConvTranspose1d) -> None:
        nn.Module.__init__(self)
        self.in_channels, self.out_channels = layer.in_channels, layer.out_channels
        self.kernel_size, self.stride = layer.kernel_size, layer.stride
        self.bias = layer.bias
        # [in, out, kernel] -> [out x kernel, in]
        self.product = Reordered(layer.weight.detach().flatten(1).T)
        _leave(self, layer.weight)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        lanes, _, time = input.shape
        rows = self.product(input.transpose(1, 2).reshape(-1, self.in_channels))
        kernels = rows.view(lanes, time, self.out_channels, -1).transpose(1, 2)
        return _overlap(kernels, self.stride[0], self.bias)


class DepthwiseConvTranspose(nn.ConvTranspose1d):
    """[lanes, channels, time] -> [lanes, channels, (time + 1) x stride]; nothing to sum over."""

    def __init__(self, layer: nn.ConvTranspose1d) -> None:
        nn.Module.__init__(self)
        self.in_channels = self.out_channels = layer.in_channels
        self.kernel_size, self.stride = layer.kernel_size, layer.stride
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return _overlap(input.unsqueeze(-1) * self.weight, self.stride[0], self.bias)


def _overlap(kernels: Tensor, stride: int, bias: Tensor | None) -> Tensor:
    """[lanes, channels, time, 2 x stride], each ``stride`` after the last, summed into one line."""
    lanes, channels, time, _ = kernels.shape
    line = kernels.new_zeros((lanes, channels, time + 1, stride))
    line[:, :, :time] = kernels[..., :stride]
    line[:, :, 1:] += kernels[..., stride:]
    if bias is not None:
        line += bias[:, None, None]
    return line.flatten(2)
