"""A headless Chromium, driven over its own debugging pipe: no server, no package, no network."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
WHY_NOT = "no Chromium here: pages are not looked at in a browser"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_SECONDS = 60.0


class Browser:
    """One page at a time; what went wrong in it is in `complaints`, what it asked for in
    `requested`."""

    def __init__(self, asked: int, answers: int) -> None:
        self._asked = asked
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        self.requested: list[str] = []

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a file in a new page, and wait until it is loaded."""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """Return what a JavaScript expression is in the page, as JSON."""
        answer = self._send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.run(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release one key."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if key == "Enter" else {}
            code = {"Enter": 13, "Tab": 9}[key]
            if kind == "char" and not text:
                continue
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                       windowsVirtualKeyCode=code, **text)  # fmt: skip

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page."""
        shot = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._asked, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        said = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(said["args"]))
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                self.complaints.append(json.dumps(said["entry"]))
            case "Network.requestWillBeSent":
                self.requested.append(said["request"]["url"])


@contextmanager
def browser(flags: Sequence[str] = ()) -> Iterator[Browser]:
    """Give a browser with a profile of its own; it is ended afterwards."""
    assert CHROMIUM is not None, WHY_NOT
    to_child, asked = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())
    answers, from_child = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())

    def at_its_numbers() -> None:
        os.dup2(to_child, 3)
        os.dup2(from_child, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=at_its_numbers,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        try:
            yield Browser(asked, answers)
        finally:
            os.close(asked)  # The browser ends when its pipe does.
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers)
