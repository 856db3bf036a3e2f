"""The system's own Chromium, and a server for what it looks at.

Playwright drives the browser and axe looks for what cannot be read or reached; both come with the extra ``browser`` and
are imported when a test first asks: whoever has neither can collect these tests all the same.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn

__all__ = ["PHONE", "WIDE", "Tab", "axe_source", "chromium", "serving"]

WIDE: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
LIMIT: Final = 30_000  # milliseconds for whatever the browser is asked
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_AXE: Final = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.flatMap((one) => one.nodes.map((node) =>
    `${one.id}: ${one.help}: ${node.html.slice(0, 200)}: ${node.failureSummary.replaceAll("\\n", " ")}`));
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; the test is skipped where there is none."""
    sync = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]'")
    binary = next(filter(None, map(shutil.which, _NAMES)), None)
    if binary is None:
        pytest.skip("no Chromium on this machine: apt install chromium")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=binary,
            chromium_sandbox=False,  # CI is root, for whom Chromium has none; it opens only pages of this test
            args=["--disable-dev-shm-usage", "--disable-gpu"],
            timeout=60_000,
        )
        try:
            yield browser
        finally:
            browser.close()


def axe_source() -> str:
    """The text of axe, as the package that we name in pyproject.toml carries it."""
    package = pytest.importorskip("axe_playwright_python", reason="pip install -e '.[browser]'")
    return Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")


class Tab:
    """A tab, and all that goes wrong in it. ``page`` is Playwright's; ``site``: where the console is."""

    def __init__(self, browser: Any, site: str, axe: str, **options: Any) -> None:
        options = {"viewport": WIDE, "color_scheme": "light", "reduced_motion": "reduce", **options}
        self._context = browser.new_context(base_url=site, **options)
        self._axe = axe
        self.site = site
        self.page = self._context.new_page()
        self.page.set_default_timeout(LIMIT)
        self._wrong: list[str] = []
        self.expected: set[int] = set()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self._wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self._wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def open(self, path: str) -> None:
        """Go to a page and wait until all of it is there."""
        self.page.goto(f"{self.site}{path}", wait_until="load")

    def violations(self) -> list[str]:
        """What axe finds: an element and what is wrong with it, each."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(self._axe)
        found: list[str] = self.page.evaluate(_AXE)
        return found

    def wrong(self) -> list[str]:
        """Errors in the console (the policy's among them), requests to elsewhere, and answers that nobody expected."""
        return self._wrong

    def close(self) -> None:
        """Close it."""
        self._context.close()

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") and not (self.expected and "status of" in message.text):
            self._wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.site + "/", "blob:", "data:")):
            self._wrong.append(f"request to {request.url}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self._wrong.append(f"{response.status} for {response.url}")


@contextmanager
def serving(site: Any, root_path: str = "", **options: Any) -> Iterator[str]:
    """An ASGI application on a port of this machine, and its address: ``http://127.0.0.1:…``."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        site, root_path=root_path, log_level="warning", access_log=False, lifespan="off", ws="none", **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="site-under-test", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        listening.close()
