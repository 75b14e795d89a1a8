"""Files whose bytes are hashed as they are read, and safetensors parsed from those very bytes.

A file is read once, into memory of our own: what was hashed is what is loaded, even if the file
changes meanwhile, and the weights are never held twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

READ_BYTES: Final = 8 << 20
MAX_HEADER_BYTES: Final = 100_000_000

DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class BadFile(Exception):
    """A file that is there and is not what it has to be: another digest, cut short, malformed."""


def read_verified(path: Path, digest: str, size: int | None = None) -> Tensor:
    """The file's bytes as one uint8 tensor, hashed while they were read.

    ``digest`` is ``sha256:<hex>``; ``size`` in bytes, where known, refuses a cut file before it is
    read. Raises BadFile when either differs, OSError when the file can't be read.
    """
    with path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno()).st_size
        if size is not None and found != size:
            raise BadFile(f"{path.name} has {found} bytes, its manifest says {size}")
        if not found:
            raise BadFile(f"{path.name} is empty")
        buffer = torch.empty(found, dtype=torch.uint8)
        seen = _read_hashed(file, buffer.numpy().data)
    if seen != digest:
        raise BadFile(f"{path.name} has {seen}, its manifest says {digest}")
    return buffer


def _read_hashed(file: Any, view: memoryview) -> str:
    """Fills ``view`` from ``file`` and returns the digest of what was read."""
    total, whole = 0, hashlib.sha256()
    while total < len(view):
        count = file.readinto(view[total : total + READ_BYTES])
        if not count:
            raise BadFile("the file became shorter while it was read")
        whole.update(view[total : total + count])
        total += count
    return f"sha256:{whole.hexdigest()}"


def parse_safetensors(buffer: Tensor) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file, as views of ``buffer`` wherever aligned.

    Layout: u64 LE length, JSON header of that length, data; the tensors tile the data exactly.
    Raises BadFile for anything else.
    """
    start = 8 + int.from_bytes(buffer[:8].numpy().tobytes(), "little")
    if start > min(len(buffer), MAX_HEADER_BYTES):
        raise BadFile("the safetensors header is longer than the file")
    header = _parse_header(buffer[8:start].numpy().tobytes())
    data = buffer[start:]
    _check_tiling(header, len(data))
    return {name: _tensor(data, entry, name) for name, entry in header.items()}


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes contiguous CPU tensors, by name, with a header that is the same everywhere.

    The safetensors library promises the format but not its header's exact bytes; here equal
    tensors make equal files, whatever the versions.
    """
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, position = {}, 0
    for name, tensor in sorted(tensors.items()):
        end = position + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in sorted(tensors.items()):
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def _parse_header(text: bytes) -> dict[str, tuple[str, list[int], int, int]]:
    """Name to (dtype, shape, begin, end)."""
    try:
        header = json.loads(text, object_pairs_hook=_no_twice)
        header.pop("__metadata__", None)
        return {
            name: (entry["dtype"], [int(n) for n in entry["shape"]], *map(int, _span(entry)))
            for name, entry in header.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(f"the safetensors header is malformed: {error!r}") from error


def _span(entry: dict[str, Any]) -> tuple[int, int]:
    begin, end = entry["data_offsets"]
    return begin, end


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is given twice")
    return dict(pairs)


def _check_tiling(header: dict[str, tuple[str, list[int], int, int]], size: int) -> None:
    position = 0
    for name, (_, _, begin, end) in sorted(header.items(), key=lambda item: item[1][2:]):
        if begin != position or end < begin:
            raise BadFile(f"{name}: its data overlap another tensor's or leave a hole")
        position = end
    if position != size:
        raise BadFile(f"the tensors take {position} bytes, the file holds {size}")


def _tensor(data: Tensor, entry: tuple[str, list[int], int, int], name: str) -> Tensor:
    dtype_name, shape, begin, end = entry
    dtype = DTYPES.get(dtype_name)
    if dtype is None:
        raise BadFile(f"{name}: dtype {dtype_name} is not read here")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != end - begin:
        raise BadFile(f"{name}: shape and data differ in size")
    part = data[begin:end]
    if part.storage_offset() % dtype.itemsize:
        part = part.clone()
    return part.view(dtype).view(shape)
