"""Files whose bytes are hashed as they are read, and safetensors parsed from those very bytes.

A file is read once, into memory of our own and not mapped: what was hashed is what is loaded, even
if the file changes meanwhile, and the weights are never held twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

READ_BYTES: Final = 8 << 20
OWN_MAPPING_FROM_BYTES: Final = 1 << 16
MAX_HEADER_BYTES: Final = 100_000_000
MAX_NUMBER: Final = 2**63 - 1

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
    """A file that is there and is not what it has to be: another digest, cut short, malformed.

    It says what is wrong and not with which file: whoever reads one names it.
    """


def read_verified(path: Path, digest: str, size: int | None = None) -> Tensor:
    """The file's bytes as one uint8 tensor, hashed while they were read.

    ``digest`` is ``sha256:<hex>``; ``size`` in bytes, where known, refuses a cut file before it is
    read. Raises BadFile when either differs, OSError when the file can't be read.
    """
    with _open_hashed(path, digest, size) as file:
        return file.take(file.left)


def read_safetensors(path: Path, digest: str, size: int | None = None) -> dict[str, Tensor]:
    """The tensors of a file, each in memory of its own that goes when the tensor goes.

    So weights can be converted one by one without ever being there twice. Otherwise as
    ``read_verified``; also BadFile for what ``parse_safetensors`` refuses.
    """
    with _open_hashed(path, digest, size) as file:
        header = _parse_header(_take_header(file))
        _check_tiling(header, file.left)
        tensors = {}
        for name, entry in sorted(header.items(), key=lambda item: item[1][2:]):
            data = file.take(entry[3] - entry[2])
            tensors[name] = _tensor(data, (*entry[:2], 0, len(data)), name)
        return tensors


class _Hashed:
    """A file read front to back, once, every byte hashed on its way."""

    def __init__(self, file: FileIO, size: int) -> None:
        self._file, self._hash = file, hashlib.sha256()
        self.left = size

    def take(self, count: int) -> Tensor:
        """The next ``count`` bytes, in new memory."""
        buffer = _memory(count)
        view, done = buffer.numpy().data, 0
        while done < count:
            read = self._file.readinto(view[done : done + READ_BYTES])
            if not read:
                raise BadFile("the file became shorter while it was read")
            self._hash.update(view[done : done + read])
            done += read
        self.left -= count
        return buffer

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def _open_hashed(path: Path, digest: str, size: int | None) -> Iterator[_Hashed]:
    """Raises BadFile unless the block reads all of the very file that ``digest`` names."""
    with FileIO(path) as file:
        found = os.fstat(file.fileno()).st_size
        if size is not None and found != size:
            raise BadFile(f"it has {found} bytes, its manifest says {size}")
        if not found:
            raise BadFile("it is empty")
        hashed = _Hashed(file, found)
        yield hashed
    if hashed.digest != digest:
        raise BadFile(f"it has {hashed.digest}, its manifest says {digest}")


def copied(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous copy on the CPU, in ``dtype``, that leaves the process when it is freed.

    The C library keeps freed memory of a few MB for itself and, by where its heap happens to lie,
    can't use it for the next aligned matrix of that size: loading would then take more, sometimes.
    """
    dtype = dtype or tensor.dtype
    memory = _memory(tensor.numel() * dtype.itemsize)
    return memory.view(dtype).view(tensor.shape).copy_(tensor)


def _memory(count: int) -> Tensor:
    """Uninitialised bytes. Large ones are a mapping of their own: freed, they leave the process."""
    if count < OWN_MAPPING_FROM_BYTES:
        return torch.empty(count, dtype=torch.uint8)
    # Private pages: shared ones, mmap's own choice, take a third longer to fill.
    try:
        pages = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # no fault of the file that is read
        raise MemoryError(f"{count} bytes: {error.strerror}") from error
    return torch.frombuffer(pages, dtype=torch.uint8)


def _take_header(file: _Hashed) -> bytes:
    if file.left < 8:
        raise BadFile("the safetensors header is longer than the file")
    length = int.from_bytes(file.take(8).numpy().tobytes(), "little")
    if length > min(file.left, MAX_HEADER_BYTES):
        raise BadFile("the safetensors header is longer than the file")
    return file.take(length).numpy().tobytes()


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
        return {name: _entry(given) for name, given in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadFile(f"the safetensors header is malformed: {error!r}") from error


def _entry(given: dict[str, Any]) -> tuple[str, list[int], int, int]:
    dtype, shape, (begin, end) = given["dtype"], list(given["shape"]), given["data_offsets"]
    if type(dtype) is not str:
        raise TypeError("a dtype is no name")
    if not all(type(each) is int and each <= MAX_NUMBER for each in (*shape, begin, end)):
        raise TypeError("a size is no whole number of 63 bits")
    return dtype, shape, begin, end


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
