"""A real browser, told what to do over its debugging pipe: two file descriptors, no library."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAIT_S = 60.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """One page of a browser. What it logs and what its policy forbids is in ``complaints``."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest = b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        done = self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, condition: str, timeout_s: float = WAIT_S) -> None:
        """Wait until an expression holds, looking every few frames."""
        deadline = time.monotonic() + timeout_s
        while not self.run(condition):
            assert time.monotonic() < deadline, (condition, self.text("body"), self.complaints)
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def click(self, selector: str) -> None:
        """As a person does: a user's gesture, which sound needs."""
        where = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._ask(
                "Input.dispatchMouseEvent",
                type=kind,
                x=where[0],
                y=where[1],
                button="left",
                clickCount=1,
            )

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        message: dict[str, Any] = {"id": next(self._ids), "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + WAIT_S
        while True:
            heard = self._hear(deadline)
            if heard.get("id") == message["id"]:
                assert "error" not in heard, (method, heard)
                return dict(heard["result"])
            self._note(heard)

    def _hear(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._reading], [], [], max(0.0, left))
            assert ready, "the browser does not answer"
            data = os.read(self._reading, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            entry = params["entry"]
            if entry["source"] != "network":  # a refusal is an answer, too
                self.complaints.append(str(entry["text"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))


@contextmanager
def browsing(program: str) -> Iterator[Page]:
    """A browser with a folder of its own, whose path is short enough for its sockets. It is ended,
    and its folder removed, when the block ends.
    """
    room = tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True)
    with room as folder, _started(program, folder) as page:
        yield page


@contextmanager
def _started(program: str, folder: str) -> Iterator[Page]:
    to_browser, writing = _pipe()
    reading, from_browser = _pipe()

    def place() -> None:
        os.dup2(to_browser, 3)
        os.dup2(from_browser, 4)

    process = subprocess.Popen(
        [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--no-proxy-server",
            f"--user-data-dir={folder}/profile",
        ],
        pass_fds=(3, 4),
        preexec_fn=place,  # it reads at 3 and writes at 4
        env={**os.environ, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(reading, writing)
    finally:
        process.terminate()
        process.wait(WAIT_S)
        os.close(reading)
        os.close(writing)


def _pipe() -> tuple[int, int]:
    """Both ends, out of the way of the browser's."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
