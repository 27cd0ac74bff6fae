"""Chromium without a window, spoken to over a pipe by its DevTools protocol."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The browser, where there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page, for `with`. It cannot resolve any host."""

    def __init__(self, program: str) -> None:
        self._program, self._numbers = program, itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND"]
        flags += [f"--user-data-dir={self._profile.name}", "about:blank"]
        # it reads from descriptor 3 and writes to descriptor 4
        joined = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", joined, "bash", self._program, *flags],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        self._rest, self._session = b"", None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        found = self.do("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.do(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # it ends when nobody speaks to it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and what it gives back."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, width: int, scheme: str) -> None:
        """Show a file in a window of this width, "light" or "dark", until it is loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.do("Emulation.setDeviceMetricsOverride", **size)
        scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
        self.do("Emulation.setEmulatedMedia", features=[scheme_feature])
        self.events.clear()
        self.do("Page.navigate", url=path.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to on the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that the page has asked for since it was opened."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, whole: bool = True) -> bytes:
        """The page as PNG, down to its end."""
        found = self.do("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        return base64.b64decode(found["data"])

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.do("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "scale": 1}}
