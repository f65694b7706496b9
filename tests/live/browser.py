"""A headless Chromium, driven over two pipes by its own protocol, with the standard library alone."""

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import site_check

PATIENCE = 60.0  # seconds that a page may take for anything
NO_CHROMIUM = (
    "there is no Chromium to open the page in (apt install chromium); what the server answers and sends is tested "
    "without it, in test_server.py and test_feed.py"
)
IN_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(site_check.BROWSER is None, reason=NO_CHROMIUM),
    pytest.mark.usefixtures("often"),
]


class Browser:
    """One page in a browser."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_it, self._to = os.pipe()
        self._from, from_it = os.pipe()
        # the protocol's file descriptors are 3 and 4
        start = 'exec 3<&$0 4>&$1; shift 1; exec "$@"'
        options = [option for option in site_check.QUIET if not option.startswith("--virtual")]
        command = [str(site_check.BROWSER), *options, f"--user-data-dir={self._profile.name}", "about:blank"]
        shell = ["bash", "-c", start, str(to_it), str(from_it), *command, "--remote-debugging-pipe"]
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            shell, pass_fds=(to_it, from_it), stdin=nothing, stdout=nothing, stderr=nothing
        )
        os.close(to_it)
        os.close(from_it)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Runtime", "Page", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def open(self, address: str, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        """Open a page in a window of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=address)

    def find(self, script: str) -> Any:
        """Return the value of an expression of the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, accepted: Callable[[Any], bool] = bool) -> Any:
        """Return the value of an expression as soon as it is accepted."""
        until = time.monotonic() + PATIENCE
        while True:
            found = self.find(script)
            if accepted(found):
                return found
            assert time.monotonic() < until, f"{script} is {found}; {self.errors}"
            time.sleep(0.05)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write what is seen as a PNG."""
        shown = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._profile.cleanup()

    def _receive(self) -> Any:
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        said = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded":
            self.errors.append(said["entry"].get("text", "") + " " + said["entry"].get("url", ""))
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
