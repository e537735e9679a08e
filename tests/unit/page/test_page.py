"""The page's answers: headers, files, and that it asks nobody else for anything."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path

import pytest
from werkzeug.test import Client, TestResponse

import controller.page.app as page_app
from controller.page.app import create_page
from tests.unit.pages import ROOT

STATIC = Path(page_app.__file__).parent / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
TEXTS = [name for name in FILES if not name.endswith(".png")]


def get(path: str, *, version: str = "1.2.3", **options: object) -> TestResponse:
    return Client(create_page(version)).open(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/", *(f"/page/{name}" for name in FILES), "/page/none.js", "/status"])
def test_every_answer_carries_the_policies(path: str) -> None:
    headers = get(path).headers
    assert {
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    } == set(headers["Content-Security-Policy"].split("; "))
    assert ("nosniff", "no-referrer") == (headers["X-Content-Type-Options"], headers["Referrer-Policy"])
    assert headers["Cache-Control"] in ("no-store", "no-cache")


def test_the_page_is_html_and_its_version_is_text() -> None:
    answer = get("/", version="1.2.3-<script>alert(1)</script>")
    assert (200, "text/html") == (answer.status_code, answer.mimetype)
    assert "no-store" == answer.headers["Cache-Control"]
    assert "1.2.3-&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text


def test_a_file_that_has_not_changed_is_not_sent_again() -> None:
    first = get("/page/page.css")
    assert 200 == first.status_code
    again = get("/page/page.css", headers={"If-None-Match": first.headers["ETag"], "Accept-Encoding": "gzip"})
    assert (304, b"") == (again.status_code, again.data)


@pytest.mark.parametrize("path", ["/page/", "/page/../app.py", "/page/%2e%2e/app.py", "/page/page.html", "/overview"])
def test_nothing_else_is_served(path: str) -> None:
    answer = get(path)
    assert (404, "not found\n", "text/plain") == (answer.status_code, answer.text, answer.mimetype)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/page/page.css"])
def test_it_is_read_only(path: str, method: str) -> None:
    assert 405 == get(path, method=method).status_code


def test_all_that_the_page_refers_to_is_there_and_relative() -> None:
    named = re.findall(r'(?:src|href)="([^"#]+)"', get("/").text)
    assert len(named) > 3
    documents = {"overview"}  # the status port's own
    assert [] == [name for name in named if name not in documents and get(f"/{name}").status_code != 200]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_all_that_a_script_imports_is_there(name: str) -> None:
    imported = re.findall(r'^(?:import|export)\b[^;]*?from "([^"]+)";', (STATIC / name).read_text(), re.MULTILINE)
    assert [] == [one for one in imported if not (one.startswith("./") and (STATIC / one).is_file())]


@pytest.mark.parametrize("name", ["page.html", *TEXTS])
def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup(name: str) -> None:
    text = get("/").text if name == "page.html" else (STATIC / name).read_text()
    # The name of SVG's namespace is no address.
    assert [] == re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\"'\s]*", text.replace("http://www.w3.org/2000/svg", ""))
    assert [] == re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
    assert [] == re.findall(r"@import|url\((?!#)", text)


def test_the_policy_blocks_nothing_of_the_page() -> None:
    """Neither scripts nor styles in its text."""
    html = get("/").text
    assert [] == re.findall(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert [] == [script for script in re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) if script]


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_who_can_unpack_it_gets_it_compressed(path: str) -> None:
    plain, packed = get(path), get(path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert (None, "gzip") == (plain.headers.get("Content-Encoding"), packed.headers["Content-Encoding"])
    assert plain.data == gzip.decompress(packed.data)
    assert {"Accept-Encoding"} == set(plain.vary) == set(packed.vary)
    assert str(len(packed.data)) == packed.headers["Content-Length"]
    assert "Content-Encoding" not in get(path, headers={"Accept-Encoding": "gzip;q=0"}).headers


def test_the_page_is_small() -> None:
    """So that it and the first documents of 500 nodes stay below 300 KB (tests/page)."""
    paths = ["/", *(f"/page/{name}" for name in FILES)]
    assert sum(len(get(path, headers={"Accept-Encoding": "gzip"}).data) for path in paths) < 30_000


def test_all_files_are_installed() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = STATIC.parent
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == {path for pattern in patterns["controller.page"] for path in folder.glob(pattern)}
