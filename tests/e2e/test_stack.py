"""``psionic-csm up``: several stacks on one machine, workers that die, and a clean end."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from cli.exits import NOT_STARTED
from tests.e2e.stacks import WAIT_S, CommandLine, Up, busy_worker, command_line, demo_cache

__all__ = ["command_line", "demo_cache"]

pytestmark = pytest.mark.e2e

LONG = "This answer is under way when its worker is killed."


@pytest.fixture
def up(command_line: CommandLine) -> Up:
    return Up(command_line, "--lanes", "2")


def test_two_stacks_serve_side_by_side_and_end_without_a_trace(
    tmp_path: Path, demo_cache: Path
) -> None:
    """Each has its own ports, Redis and numbers; Ctrl-C ends one and does not touch the other."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one, other = (CommandLine(folder, demo_cache) for folder in folders)
    with Up(one, "--lanes", "2") as first, Up(other, "--lanes", "3") as second:
        urls = (first.url, second.url)
        assert urls[0] != urls[1]
        piece = one.json("speak", "Hi.", "--url", urls[0], "--seed", "5", "-o", f"{tmp_path}/a.wav")
        stream = other.json(
            *("speak", "Hi.", "--url", urls[0], "--seed", "5", "-o", f"{tmp_path}/b.wav"),
            "--stream",
        )
        states = [one.json("status", "--url", url)["load"] for url in urls]
        code, table, _ = one.run("status", "--url", urls[0])

        assert piece["wav_digest"] == stream["wav_digest"]
        assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
        assert [state["capacity_lanes"] for state in states] == [2, 3]
        assert [state["queue_depth"] for state in states] == [0, 0]
        assert code == 0
        assert "0 of 2 lanes" in table
        assert first.stop(signal.SIGINT) == 0
        assert one.leftovers() == []
        assert other.json("status", "--url", urls[1])["health"]["status"] == "ok"

    assert second.process.returncode == 0
    assert other.leftovers() == []


def test_a_killed_worker_is_replaced_and_the_caller_gets_the_whole_answer(
    command_line: CommandLine, tmp_path: Path
) -> None:
    """SIGKILL in mid-answer: another worker finishes what was begun, a new one takes the place."""
    command_line.environment["PSIONIC_CSM_RENEW_MS"] = "50"  # how soon a worker says it is busy
    with Up(command_line, "--workers", "2", "--lanes", "2") as up:
        url = up.url
        speaking = command_line.start(
            *("speak", LONG, "--url", url, "--stream", "-o", str(tmp_path / "out.wav")),
            *("--timeout-ms", "30000"),
        )
        killed = busy_worker(url)
        os.kill(killed, signal.SIGKILL)

        assert up.wait_for(r"worker-\d ended \(SIGKILL\).*restart 1")
        out, err = speaking.communicate(timeout=WAIT_S)
        assert speaking.returncode == 0, err
        assert "verified" in out
        assert len(command_line.workers() - {killed}) == 2
    assert command_line.leftovers() == []


def test_a_second_ctrl_c_does_not_wait(up: Up, command_line: CommandLine) -> None:
    """Two signals end even a stack that is still starting, and still leave nothing."""
    with up:
        up.wait_for(r"worker-1 *\|")
        up.process.send_signal(signal.SIGINT)
        up.stop(signal.SIGINT)

    assert command_line.leftovers() == []


def test_a_taken_port_is_one_line(command_line: CommandLine) -> None:
    """A port that someone else listens on is told in one line, before anything is started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        code, out, err = command_line.run("up", "--port", str(port))

    assert code == NOT_STARTED
    assert err.startswith(f"error: can't listen on 127.0.0.1 port {port}")
    assert "Traceback" not in out + err
    assert command_line.leftovers() == []
