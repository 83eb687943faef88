"""A headless Chromium, driven over chromedriver's HTTP protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Down": "\ue015", "Up": "\ue013", "Escape": "\ue00c", "Control": "\ue009"}


class Browser:
    """One window; leave the `with` block to close it."""

    def __enter__(self) -> Browser:
        assert CHROMIUM and DRIVER
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.downloads = Path(self.profile.name) / "downloads"
        self.downloads.mkdir()
        self.driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self.at = f"http://127.0.0.1:{self._port()}/session"
            options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={self.profile.name}/profile"]}
            capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = self.send("", {"capabilities": {"alwaysMatch": capabilities}})
            self.at = f"{self.at}/{session['sessionId']}"
            self.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.send("", None, "DELETE")
        self.driver.terminate()
        self.driver.wait(10)
        self.profile.cleanup()

    def _port(self) -> str:
        """The port that chromedriver prints when it has started."""
        assert self.driver.stdout
        for line in self.driver.stdout:
            match = re.search(r"successfully on port (\d+)", line)
            if match:
                return match[1]
        raise AssertionError("chromedriver did not start")

    def send(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.at + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.send("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, address: str) -> None:
        self.send("/url", {"url": address})

    def reload(self) -> None:
        self.send("/refresh")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function body in the page and return its result."""
        return self.send("/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        """Press keys one after another in the focused element. `Control+Enter` is one chord."""
        acts = []
        for key in keys:
            held = [KEYS.get(part, part) for part in key.split("+")] if len(key) > 1 else [key]
            acts += [{"type": "keyDown", "value": value} for value in held]
            acts += [{"type": "keyUp", "value": value} for value in reversed(held)]
        self.send("/actions", {"actions": [{"type": "key", "id": "keys", "actions": acts}]})

    def type(self, text: str) -> None:
        self.press(*text)

    def focus(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def click(self, selector: str) -> None:
        element = self.send("/element", {"using": "css selector", "value": selector})
        self.send(f"/element/{element[ELEMENT]}/click")

    def click_at(self, x: float, y: float) -> None:
        """Click with the mouse at this place of the window."""
        acts = [
            {"type": "pointerMove", "x": round(x), "y": round(y)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self.send("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": acts}]})

    def text(self, selector: str) -> str:
        return str(self.run("return (document.querySelector(arguments[0]) || {}).textContent || ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector))

    def until(self, condition: Callable[[], Any], seconds: float = 15) -> Any:
        """Call a function until its result is true, and return that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            result = condition()
            if result:
                return result
            time.sleep(0.03)
        raise AssertionError(f"nothing after {seconds} s; the page says: {self.text('#problem')}")

    def console_errors(self) -> list[str]:
        """Errors in the console: exceptions, and violations of the content security policy."""
        return [line["message"] for line in self.send("/se/log", {"type": "browser"}) if line["level"] == "SEVERE"]

    def look(self, path: Path, width: int, height: int, features: Sequence[tuple[str, str]] = ()) -> None:
        """Save a screenshot at this size."""
        self.resize(width, height, features)
        time.sleep(0.5)
        path.write_bytes(base64.b64decode(self.send("/screenshot", None, "GET")))

    def resize(self, width: int, height: int, features: Sequence[tuple[str, str]] = ()) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        media = [{"name": name, "value": value} for name, value in features]
        self.devtools("Emulation.setEmulatedMedia", features=media)
