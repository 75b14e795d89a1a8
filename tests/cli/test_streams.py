"""Standard input, output and error as the shell hands them over: by real processes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.exits import NOT_STARTED, REFUSED, UNREACHABLE, USAGE
from shared.digests import sha256_hex
from shared.output import ESCAPED
from shared.wav import FRAME_BYTES, HEADER_BYTES, wav_file

ROOT = Path(__file__).resolve().parent.parent.parent
WAV = wav_file(bytes(range(256)) * 30 * (FRAME_BYTES // 3840 * 50))
FRAMES = (len(WAV) - HEADER_BYTES) // FRAME_BYTES
HEADERS = {
    "x-psionic-request-id": "r",
    "x-psionic-csm-artifact-id": "a",
    "x-psionic-csm-voice-profile-id": "v",
    "x-psionic-served-backend": "cpu",
    "x-psionic-csm-generated-frame-count": str(FRAMES),
    "x-psionic-output-duration-ms": str(FRAMES * 80),
    "x-psionic-full-generation-latency-ms": "1",
    "x-psionic-csm-wav-pcm16-digest": sha256_hex(WAV),
    "x-psionic-csm-frames-sha256": "c",
}


class Spoken(BaseHTTPRequestHandler):
    """Answers every text with the same audio."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        for name, value in {**HEADERS, "content-length": str(len(WAV))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(WAV)

    def do_GET(self) -> None:
        body = b'{"voice_profiles": []}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place where a file may be written, wherever the tests lie."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Spoken)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a line as a person types it, with no proxy but its own; ``$csm`` is the command."""
    csm = f"{sys.executable} -m cli"
    ours = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return subprocess.run(
        ["bash", "-c", script],
        env={**ours, "PYTHONPATH": str(ROOT), "csm": csm, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_audio_on_standard_output_is_nothing_but_audio(url: str, output: str) -> None:
    """Through a pipe comes the file, whole; all that is said of it is on standard error."""
    done = shell(f"$csm speak hi --url {url} -o {output} --json | cat")

    assert done.stdout == WAV
    assert b"... speaking" in done.stderr
    report = json.loads(done.stderr[done.stderr.index(b"{") :])
    assert report["file"] == output


def test_a_redirected_file_keeps_the_audio(url: str, tmp_path: Path) -> None:
    """Naming the file that standard output leads to does not mix the report into it."""
    done = shell(
        f"cd $OUT; $csm speak hi --url {url} -o o.wav > o.wav; cat o.wav", OUT=str(tmp_path)
    )

    assert done.stdout == WAV


@pytest.mark.parametrize("command", ["speak hi -o -", "voices --json", "--version"])
def test_a_reader_that_leaves_is_no_error(url: str, command: str) -> None:
    """A broken pipe ends the command quietly, as it ends any other tool."""
    read, write = os.pipe()
    os.close(read)
    where = [] if command == "--version" else ["--url", url]
    with os.fdopen(write, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "cli", *command.split(), *where],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert done.returncode == 128 + signal.SIGPIPE
    assert b"rror" not in done.stderr


def test_a_full_disk_under_standard_output_is_one_line(url: str) -> None:
    """What can't be written is told, and nothing more is said at the interpreter's end."""
    done = shell(f"$csm speak hi --url {url} -o - > /dev/full")

    assert done.returncode == NOT_STARTED
    assert done.stderr.splitlines()[1:] == [
        b"error: can't write to standard output: No space left on device"
    ]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["speak hi -o -", "voices --json"])
def test_a_nearly_full_disk_is_no_success(
    url: str, tmp_path: Path, command: str, unbuffered: str
) -> None:
    """Where only a part fits, whatever Python is told of buffers, the command says so."""
    out = tmp_path / "out"
    out.write_bytes(bytes(1023))

    done = shell(f"ulimit -f 1; $csm {command} --url {url} >> {out}", PYTHONUNBUFFERED=unbuffered)

    assert done.returncode == NOT_STARTED
    assert b"error: can't write to standard output: File too large" in done.stderr


def test_names_that_are_no_utf_8_pass(url: str, tmp_path: Path) -> None:
    """A file's name may be any bytes: it is written to, and told as it is."""
    done = shell(f"cd $OUT; $csm speak hi --url {url} -o $'\\xff \\n\"x'", OUT=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert os.listdir(os.fsencode(tmp_path)) == [b'\xff \n"x']
    assert b'\xff \n"x' in done.stdout


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (r"printf 'a\xff' | $csm speak -", REFUSED, "invalid_input_text: the text is not UTF-8"),
        (r'$csm speak "$(printf "a\xff")"', REFUSED, "invalid_input_text: the text is not UTF-8"),
        ("$csm speak - <&-", USAGE, "standard input is closed"),
        ("$csm speak hi -o - >&-", USAGE, "standard output is closed"),
        ("head -c 70000 /dev/zero | $csm speak -", REFUSED, "input_too_long"),
        ("TMPDIR=/nowhere PSIONIC_CSM_CACHE=/proc/no $csm speak hi", NOT_STARTED, "CACHE"),
        ("$csm status --url http://h --api-key 'a b'", USAGE, "the API key"),
        ("HTTP_PROXY=no://x $csm status --url http://h.example", USAGE, "proxy"),
        ("SSL_CERT_FILE=/no $csm status --url https://h.example", USAGE, "SSL_CERT_FILE"),
        (
            "HTTP_PROXY=http://127.0.0.1:1 $csm status --url http://h.example",
            UNREACHABLE,
            "NO_PROXY=h.example",
        ),
    ],
)
def test_what_the_shell_gives_wrong_is_told_in_a_few_lines(
    script: str, code: int, words: str
) -> None:
    """Texts, streams, keys and variables that can't be used: a line, an exit code, no traceback."""
    done = shell(script)

    said = done.stderr.decode()
    assert done.returncode == code
    assert words in said
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 4


def test_tls_where_there_is_none_is_told(url: str) -> None:
    """https to a gateway without TLS hints at the scheme."""
    done = shell(f"$csm status --url {url.replace('http', 'https', 1)}")

    assert done.returncode == UNREACHABLE
    assert b"hint: a gateway without TLS is at http://" in done.stderr


def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path: Path) -> None:
    """The signal ends the process at once, without a word of Python's."""
    (tmp_path / "typer.py").write_text(
        "import signal\nprint('importing', flush=True)\nsignal.pause()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", "status"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == -signal.SIGINT
    assert said == b""


def test_the_version_is_told() -> None:
    """--version names the command and ends well."""
    done = shell("$csm --version")

    assert done.returncode == 0
    assert done.stdout.startswith(b"psionic-csm ")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", b"caf\xc3\xa9 \xe2\x86\x92 \xff"),
        ("latin-1", b"caf\xe9 \\u2192 \xff"),
        ("ascii", b"caf\\xe9 \\u2192 \xff"),
    ],
)
def test_what_an_encoding_has_no_letter_for_is_escaped(encoding: str, expected: bytes) -> None:
    """An answer comes whole on any terminal, and the bytes of a file's name are what they were."""
    taken = io.BytesIO()
    out = io.TextIOWrapper(taken, encoding, errors=ESCAPED)

    out.write("caf\u00e9 \u2192 \udcff")
    out.flush()

    assert taken.getvalue() == expected


def test_an_answer_on_a_terminal_of_another_encoding() -> None:
    """The command itself writes so."""
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"caf\\xe9\n")


PRINTS = """
from cli import main, show
main.run = lambda _: show.out().print("caf\\u00e9") or 0
main.main([])
"""
