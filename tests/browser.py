"""A headless Chromium, told what to do through ChromeDriver's HTTP interface; where it is missing tests are skipped, or
fail where the environment says CI."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S, wait_until

_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]  # fmt: skip


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._at = f"{driver}/session/{session}"

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", {"features": [scheme]})
        _call(f"{self._at}/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a function body in JavaScript returns."""
        return _call(f"{self._at}/execute/sync", {"script": script, "args": []})

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def wait_for(self, script: str) -> None:
        """Until it returns something that is true."""
        wait_until(lambda: bool(self.run(script)), script)

    def troubles(self) -> list[str]:
        """What the page wrote to the console as an error."""
        entries = _call(f"{self._at}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def picture(self, path: Path, height: int) -> None:
        """A screenshot of so much of the page."""
        data = self._cdp("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {
            "x": 0, "y": 0, "width": self.run("return innerWidth"), "height": height, "scale": 1}})  # fmt: skip
        path.write_bytes(base64.b64decode(data["data"]))

    def _cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        return _call(f"{self._at}/goog/cdp/execute", {"cmd": command, "params": parameters})


def _call(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.load(answer)["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        missing = "there is no Chromium with ChromeDriver here"
        if os.environ.get("CI"):  # where all of it is to be tried
            pytest.fail(missing)
        pytest.skip(missing)
    with tempfile.TemporaryDirectory() as folder, _listening(driver) as at:
        options = {"binary": chromium, "args": [*_ARGUMENTS, f"--user-data-dir={folder}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _call(f"{at}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        yield Browser(at, session)
        request = urllib.request.Request(f"{at}/session/{session}", method="DELETE")
        urllib.request.urlopen(request, timeout=HANG_S).close()


@contextmanager
def _listening(driver: str) -> Iterator[str]:
    """ChromeDriver's address. It ends where the port that it chose in one version of IP is taken in the other."""
    said = ""
    for _ in range(10):
        with subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if "successfully" in line:
                    try:
                        yield f"http://127.0.0.1:{line.split('on port ')[1].strip().rstrip('.')}"
                    finally:
                        process.terminate()
                    return
    pytest.fail(f"ChromeDriver does not start: {said}")
