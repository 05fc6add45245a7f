"""Drive a real Chromium through its DevTools protocol, over two pipes: nothing to install beside the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Page"]

_PATIENCE = 60.0
"""Seconds that a page may take to do what is waited for, on a busy machine."""
_KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A browser of its own with one page."""

    def __init__(self, path: str, profile: Path, *, width: int = 1500, height: int = 900, dark: bool = False) -> None:
        (their_in, self._out), (self._in, their_out) = os.pipe(), os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += [f"--window-size={width},{height}", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-extensions"]
        # The browser reads commands at descriptor 3 and answers at 4; ours are first put where these two do not lie.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_in, their_out)]
        actions = [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(ends, (3, 4), strict=True)]
        quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        self._process = os.posix_spawn(path, [path, *flags, "about:blank"], os.environ, file_actions=actions + quiet)
        for end in (their_in, their_out, *ends):
            os.close(end)
        self._read, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command; return what comes back."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                msg = f"{method}: {answer['error']}"
                raise AssertionError(msg)
            else:
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser ended"
            self._read += chunk
        first, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(first))

    def open(self, file: Path) -> None:
        """Open a file, and wait until its script has run, and what it made is drawn."""
        self.run("document.body && (document.body.dataset.ready = 'left')")  # it may answer for a while yet
        self.send("Page.navigate", url=file.resolve().as_uri())
        self.wait("document.body && document.body.dataset.ready === 'yes'")
        self.frame()

    def run(self, expression: str) -> Any:
        """Return what an expression gives in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true in the page; return what it gives."""
        return _until(lambda: self.run(expression), expression)

    def frame(self) -> None:
        """Wait until the page has drawn what was asked for."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)")

    def key(self, key: str) -> None:
        """Press a key."""
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.frame()

    def type(self, text: str) -> None:
        """Write a text where the cursor is."""
        self.send("Input.insertText", text=text)
        self.frame()

    def click(self, find: str) -> None:
        """Click, with the mouse, on the element that an expression gives."""
        self.frame()
        box = f"({find}).getBoundingClientRect()"
        x, y = self.run(f"(() => {{ const r = {box}; return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.frame()

    def screenshot(self, file: Path) -> None:
        """Write a picture of the page."""
        self.frame()
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def requests(self) -> list[str]:
        """Return the addresses that were asked for, beside the page itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("file:", "data:"))] + [
            u for u in urls if u.startswith("file:")
        ][1:]

    def complaints(self) -> list[str]:
        """Return what the browser complained of: exceptions, and what the page's policy forbade."""
        found = [e["params"] for e in self.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return [json.dumps(one) for one in found]

    def close(self) -> None:
        """End the browser."""
        with suppress(OSError, AssertionError):
            self._session = ""
            self.send("Browser.close")
        for end in (self._out, self._in):
            with suppress(OSError):
                os.close(end)
        with suppress(AssertionError):
            _until(self._ended, "the browser to end", 10)
            return
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def _ended(self) -> bool:
        return os.waitpid(self._process, os.WNOHANG)[0] != 0


def _until(asked: Callable[[], Any], what: str, patience: float = _PATIENCE) -> Any:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = asked()
        if found:
            return found
        time.sleep(0.02)
    msg = f"waited {patience:g} s in vain for {what}"
    raise AssertionError(msg)
