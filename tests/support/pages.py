"""A browser for tests of pages: the Chromium of this machine, driven by Playwright, without any window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.promised import need

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
WAIT_MS = 120_000


def find_browser() -> str | None:
    """The path of a Chromium; PYDDPDIAG_CHROMIUM names another one than that in PATH."""
    path_set = os.environ.get("PYDDPDIAG_CHROMIUM")
    return path_set or next((path for name in NAMES if (path := shutil.which(name))), None)


def need_browser() -> str:
    """The browser; skips the test where there is none."""
    path = find_browser()
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        need("tools", "Playwright is not installed (dependency group 'tools')")
    if path is None:
        need("chromium", "no Chromium here; PYDDPDIAG_CHROMIUM=PATH names one that is not in PATH")
        raise AssertionError("unreachable")
    return path


class Seen:
    """What a page did that it should not do: messages on its console, and requests beyond its own file."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.asked: list[str] = []

    def watch(self, page: Any) -> None:
        """Listen to a page."""
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))


@contextmanager
def browser() -> Iterator[Any]:
    """A running browser."""
    path = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Root needs --no-sandbox; the pages are our own. Less shared memory than a container may have.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        running = driver.chromium.launch(executable_path=path, args=options, timeout=WAIT_MS)
        try:
            yield running
        finally:
            running.close()


def opened(running: Any, file: Path, seen: Seen, **options: Any) -> Any:
    """A page with the file, once all charts are drawn."""
    page = running.new_context(**options).new_page()
    page.set_default_timeout(WAIT_MS)
    seen.watch(page)
    page.goto(file.resolve().as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    return page


def skip_without(module: str) -> None:
    """Skip where a tool is not installed; where 'tools' are promised, that is a failure."""
    try:
        __import__(module)
    except ImportError:
        need("tools", f"{module} is not installed (dependency group 'tools')")
    pytest.importorskip(module)
