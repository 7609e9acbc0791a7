"""The page's routes: its files, their headers, who may read them, and that packages carry them."""

import re
import tomllib
from pathlib import Path, PurePath

import pytest
from fastapi.testclient import TestClient

import rayhier
from rayhier.serve.http.page import FILES, FOLDER, PAGE

from .stand_ins import TOKEN, Canned, app_of, error


@pytest.fixture
def client(held):
    return TestClient(app_of(Canned(), tokens=held))


def test_files_need_no_token_and_say_what_they_are(client):
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path, name in FILES.items():
        response = client.get(path)
        assert response.headers["content-type"].partition(";")[0] == kinds[Path(name).suffix]
        assert response.content == (FOLDER / name).read_bytes()


def test_headers_keep_the_page_to_this_server(client):
    for method, path in (("GET", "/"), ("HEAD", "/page/main.js")):
        headers = client.request(method, path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        kept = [headers[name] for name in ("x-content-type-options", "referrer-policy", "cache-control")]
        assert kept == ["nosniff", "no-referrer", "no-cache"]


def test_nothing_else_is_open(client):
    for path in ("/page", "/page/", "/page/nosuch.js", "/page/../http/api.py", "/page/%2e%2e/app.py"):
        assert error(client.get(path))[:2] == (401, "unauthorized")
        assert error(client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}))[:2] == (404, "not_found")


def test_every_file_has_a_path_and_packages_carry_it():
    names = {path.name for path in FOLDER.iterdir()}
    assert names == set(FILES.values())
    project = Path(rayhier.__file__).parents[1] / "pyproject.toml"
    patterns = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["rayhier"]
    inside = FOLDER.relative_to(Path(rayhier.__file__).parent)
    assert [name for name in names if not any(PurePath(inside, name).match(pattern) for pattern in patterns)] == []


def test_the_page_names_files_of_this_server_alone():
    imported = r"""(?:from|import) "\./([\w.]+)"|(?:src|href)="(?!#)([^"]+)"|url\(([^)]*)\)"""
    for name in FILES.values():
        text = (FOLDER / name).read_text()
        for module, address, url in re.findall(imported, text):
            assert (f"/page/{module}" if module else f"/{address or url}") in PAGE
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=|style=", text)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
