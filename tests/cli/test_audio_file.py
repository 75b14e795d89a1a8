"""Where ``speak`` puts its audio, and what it says when it can't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli import audio_file, main
from cli.exits import NOT_STARTED, USAGE, CommandFailed


@pytest.mark.parametrize("output", ["no/such/folder/x.wav", "."])
def test_a_file_that_can_t_be_written_is_told_first(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started for an answer that could not be kept."""
    assert main.run(["speak", "hi", "-o", output]) == USAGE
    assert "error: " in capsys.readouterr().err


def test_an_answer_goes_where_the_name_leads(tmp_path: Path) -> None:
    """A link keeps pointing at its file, a pipe stays a pipe, and no half file is left."""
    file, link, pipe = tmp_path / "file.wav", tmp_path / "link.wav", tmp_path / "pipe.wav"
    link.symlink_to(file)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)

    audio_file.write(link, b"abc")
    audio_file.write(pipe, b"def")

    assert (link.is_symlink(), file.read_bytes()) == (True, b"abc")
    assert (pipe.is_fifo(), os.read(reader, 10)) == (True, b"def")
    assert {path.name for path in tmp_path.iterdir()} == {"file.wav", "link.wav", "pipe.wav"}
    os.close(reader)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_the_names_of_standard_output_are_known(name: str) -> None:
    """However standard output is called, it is not replaced by a file."""
    assert audio_file.is_standard_output(Path(name))


def test_another_file_is_not_standard_output(tmp_path: Path) -> None:
    """A file of its own, there or not, and the null device are none of its names."""
    there = tmp_path / "there.wav"
    there.touch()

    for path in (there, tmp_path / "new.wav", Path("/dev/null")):
        assert not audio_file.is_standard_output(path)


def test_a_full_device_is_one_line() -> None:
    """No space left: the file is named, with the cause."""
    with pytest.raises(CommandFailed) as caught:
        audio_file.write(Path("/dev/full"), b"abc")

    assert caught.value.exit_code == NOT_STARTED
    assert "can't write /dev/full: No space left" in caught.value.message


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the whole file is there the old one stays, and no part of the new one does."""
    file = tmp_path / "file.wav"
    file.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(CommandFailed):
        audio_file.write(file, b"new")

    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("name", ["x" * 300 + ".wav", "/proc/version/x.wav"])
def test_an_impossible_name_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no file can have is refused before anything starts."""
    assert main.run(["speak", "hi", "-o", name]) == USAGE
    assert "Traceback" not in capsys.readouterr().err
