"""Browsers, shared by the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.browser import CHROMIUM, DRIVER, Browser


def started() -> Iterator[Browser]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def first_browser() -> Iterator[Browser]:
    yield from started()


@pytest.fixture(scope="session")
def second_browser() -> Iterator[Browser]:
    yield from started()


@pytest.fixture()
def browser(first_browser: Browser) -> Iterator[Browser]:
    """A browser with a desktop window, which leaves the page before the server stops."""
    first_browser.resize(1280, 900, [("prefers-reduced-motion", "reduce")])
    first_browser.console_errors()  # drop those of earlier tests
    yield first_browser
    first_browser.open("about:blank")


@pytest.fixture()
def other(second_browser: Browser) -> Iterator[Browser]:
    """The browser of another curator."""
    yield second_browser
    second_browser.open("about:blank")
