"""Safetensors files as they are read: in order, once, and refused when they are damaged."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_worker.model.weights import (
    BadFile,
    copied,
    parse_safetensors,
    read_verified,
    write_safetensors,
)
from shared.digests import file_sha256

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b.bf16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "c.odd": torch.tensor([1, 2, 3], dtype=torch.uint8),
    "d.codes": torch.tensor([[7], [2047]], dtype=torch.int16),
    "e.scalar": torch.tensor(3.0),
    "f.empty": torch.empty(0, 4),
}


def read(path: Path) -> dict[str, torch.Tensor]:
    return parse_safetensors(read_verified(path, file_sha256(path)))


def with_header(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    """Names, shapes, types and values are those of the safetensors library, odd offsets too."""
    path = tmp_path / "x.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt"})

    found = read(path)

    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].equal(tensor)


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    """Our own file is a plain safetensors file."""
    path = tmp_path / "x.safetensors"
    write_safetensors(path, TENSORS)

    found = load_file(path)

    assert all(found[name].equal(tensor) for name, tensor in TENSORS.items())


def test_equal_tensors_make_equal_files(tmp_path: Path) -> None:
    """The bytes don't depend on the order of the names or on strides."""
    first, second = tmp_path / "1", tmp_path / "2"
    write_safetensors(first, TENSORS)
    turned = {name: TENSORS[name] for name in reversed(TENSORS)}
    turned["a"] = torch.arange(6, dtype=torch.float32).view(2, 3).T.contiguous().T

    write_safetensors(second, turned)

    assert first.read_bytes() == second.read_bytes()


def test_weights_are_not_copied(tmp_path: Path) -> None:
    """Aligned tensors are views of the buffer that was hashed."""
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": TENSORS["a"]})
    buffer = read_verified(path, file_sha256(path))

    tensor = parse_safetensors(buffer)["a"]

    assert tensor.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()


def test_another_digest_is_refused(tmp_path: Path) -> None:
    """One flipped bit, and nothing is loaded."""
    path = tmp_path / "x.safetensors"
    write_safetensors(path, TENSORS)
    digest = file_sha256(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    with pytest.raises(BadFile, match=digest):
        read_verified(path, digest)


def test_cut_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Where the size is known, a file of another size is not even hashed."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(bytes(99))

    with pytest.raises(BadFile, match="99 bytes, its manifest says 100"):
        read_verified(path, file_sha256(path), 100)


def test_empty_and_missing_files(tmp_path: Path) -> None:
    """An empty file is a bad one; a missing file is the system's error."""
    path = tmp_path / "x"
    path.write_bytes(b"")

    with pytest.raises(BadFile, match="empty"):
        read_verified(path, file_sha256(path))
    with pytest.raises(FileNotFoundError):
        read_verified(tmp_path / "none", "sha256:")


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (b"", b""),
        (b"{", b""),
        ([], b""),
        ({"a": 1}, b""),
        ({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        ({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(3)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(5)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
        (
            {
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            bytes(4),
        ),
        (
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            bytes(1),
        ),
        (b"[" * 100_000, b""),
        (b'{"a":{"dtype":"U8","shape":[Infinity],"data_offsets":[0,1]}}', bytes(1)),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e999]}}', bytes(1)),
        ({"a": {"dtype": "U8", "shape": [1.5], "data_offsets": [0, 1]}}, bytes(1)),
        ({"a": {"dtype": "U8", "shape": [0, 1 << 70], "data_offsets": [0, 0]}}, b""),
        ({"a": {"dtype": ["U8"], "shape": [1], "data_offsets": [0, 1]}}, bytes(1)),
    ],
)
def test_malformed_file_is_refused(tmp_path: Path, header: Any, data: bytes) -> None:
    """Whatever is wrong inside, the refusal is a BadFile and nothing is read out of bounds."""
    path = with_header(tmp_path / "x", header, data)

    with pytest.raises(BadFile):
        read(path)


@pytest.mark.parametrize("data", [b"\x00", b"\xff" * 8, b"\x09" + bytes(8)])
def test_header_beyond_the_file_is_refused(tmp_path: Path, data: bytes) -> None:
    """A length that points past the end is no header."""
    path = tmp_path / "x"
    path.write_bytes(data)

    with pytest.raises(BadFile, match="header"):
        read(path)


def test_a_copy_is_contiguous_and_of_the_type_asked_for() -> None:
    """Values stay, whatever the strides and the size, and another type rounds as torch does."""
    small = torch.arange(6, dtype=torch.float32).view(2, 3)
    large = torch.randn(300, 400)
    for source in (small, small.T, large.T, torch.empty(0, 4), torch.tensor(3.0)):
        assert copied(source).is_contiguous()
        assert torch.equal(copied(source), source)
        assert torch.equal(copied(source, torch.bfloat16), source.to(torch.bfloat16))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_freed_copy_leaves_the_process() -> None:
    """The heap keeps freed pieces of 2 MiB between pieces in use; copies are not of the heap."""
    source = torch.ones(1 << 20, dtype=torch.bfloat16)
    torch.ones(3 << 20)  # Freed, it teaches the C library to serve such sizes from the heap.
    copies, between = [], []
    for _ in range(16):
        copies.append(copied(source))
        between.append(source.clone())

    full = _resident()
    copies.clear()

    assert full - _resident() > 24 << 20
    assert len(between) == 16


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
