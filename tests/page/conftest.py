"""A browser for the run, a status port for each check, and tabs whose console has to stay empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.page import chromium
from tests.page.site import PageSite

expect.set_options(timeout=20_000)  # of a machine that does other things as well

Open = Callable[..., Any]  # (path="", width=1440, scheme="light", **context options) -> a tab


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as driver:
        found = chromium.launched(driver)
        yield found
        found.close()


@pytest.fixture
def site() -> Iterator[PageSite]:
    found = PageSite()
    yield found
    found.close()


@pytest.fixture
def console() -> list[str]:
    """What the tabs of this check wrote there, errors that nobody caught among it. A check that breaks the page's
    answers empties it."""
    return []


@pytest.fixture
def open_page(browser: Any, site: PageSite, console: list[str]) -> Iterator[Open]:
    contexts = []

    def opened(path: str = "/", *, width: int = 1440, height: int = 900, scheme: str = "light", **more: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        tab.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: console.append(f"error: {error}"))
        tab.on("dialog", dismiss)
        tab.goto(site.address + path)
        return tab

    def dismiss(dialog: Any) -> None:
        console.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    yield opened
    for context in contexts:
        context.close()
    assert [] == console
