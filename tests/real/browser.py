"""A headless Chromium for tests, driven over its DevTools protocol: the little of it that these tests need."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from debian import unpacked_with_dependencies
from websockets.sync.client import ClientConnection, connect

LIMIT = 60.0  # seconds for anything
PACKAGE = "chromium-headless-shell"


class Browser:
    """One page. `complaints` collects what its console got as errors or warnings."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        deadline = time.monotonic() + LIMIT
        while True:
            answer = json.loads(self._socket.recv(timeout=max(0.0, deadline - time.monotonic())))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    # --- what tests do -----------------------------------------------------------------------------------------
    def size(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("document.documentElement?.dataset.ready === 'yes'")

    def ask(self, script: str) -> Any:
        """The value of an expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait_for(self, script: str) -> Any:
        deadline = time.monotonic() + LIMIT
        while not (found := self.ask(script)):
            assert time.monotonic() < deadline, f"never true: {script}; the console says {self.complaints}"
            time.sleep(0.05)
        return found

    def press(self, key: str, **more: Any) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}.get(key, ord(key[0]))
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        def mouse(kind: str, at: tuple[float, float], buttons: int) -> None:
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", buttons=buttons, clickCount=1
            )

        mouse("mouseMoved", start, 0)
        mouse("mousePressed", start, 1)
        for part in (0.3, 0.7, 1.0):
            mouse("mouseMoved", (start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])), 1)
        mouse("mouseReleased", end, 0)

    def picture(self, path: Path, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print(self, path: Path) -> None:
        answer = self.call("Page.printToPDF", printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """Started with a profile of its own, ended and gone afterwards."""
    root = unpacked_with_dependencies(PACKAGE, "fonts-dejavu-core")
    libraries = sorted({str(path.parent) for path in root.glob("usr/lib/**/*.so*")})
    with tempfile.TemporaryDirectory(prefix="hw-browser-") as profile:
        command = [
            str(root / "usr" / "lib" / "chromium" / PACKAGE),
            "--no-sandbox",  # it opens nothing but our own files
            "--disable-gpu",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        environment = os.environ | {"LD_LIBRARY_PATH": ":".join(libraries), "HOME": profile}
        with (
            (Path(profile) / "log").open("w+") as log,
            subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
        ):
            try:
                address = _address(Path(profile) / "log", process)
                with connect(address, max_size=None, open_timeout=LIMIT) as socket:
                    yield Browser(socket)
            finally:
                process.kill()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"DevTools listening on (ws://\S+)", log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"Chromium does not start:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def showing(window: Browser, report: Path) -> Iterator[None]:
    """A report, just opened; whatever is done with it, nothing is complained of and nothing fetched."""
    window.size(1400)
    window.complaints.clear()
    window.requests.clear()
    window.open(report)
    window.ask("document.documentElement.style.scrollBehavior = 'auto'")
    yield
    assert window.complaints == []
    assert [url for url in window.requests if not url.startswith(("file:", "data:", "blob:"))] == []
