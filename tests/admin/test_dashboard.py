"""The dashboard's files: shown to everybody, and nothing in them that a browser would fetch, run or send elsewhere."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urljoin, urlsplit

import click
import pytest

from admin.dashboard import FOLDER, HTML, PAGES
from admin.endpoints import ROUTES
from admin.routing import Router
from gateway.cli.main import sluice
from support.admin.admin_client import Control, control

PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"
PAGES_OF_HTML: Final = [path for path, page in PAGES.items() if page.content_type == HTML]
FETCHING: Final = {"href", "src", "srcset", "action", "formaction", "data", "poster", "ping", "background", "manifest"}
NO_ICON: Final = "data:,"  # so that a browser does not ask for /favicon.ico, which would count as a failed log-in


class Reader(HTMLParser):
    """What stands in a page: tags, attributes with their values, and the text of each `code` element."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.code: list[str] = []
        self._inside = False
        self.feed(PAGES[path].read().decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "code":
            self.code.append("")
        self._inside = tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.code[-1] += data


# ---- served ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
async def test_every_file_is_shown_without_a_token(api: Control, path: str) -> None:
    answer = await api.ask("GET", path, role=None)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, PAGES[path].content_type, PAGES[path].read())


@pytest.mark.parametrize("path", PAGES)
async def test_a_wrong_token_does_not_matter_and_no_failure_is_counted(api: Control, path: str) -> None:
    answer = await api.ask("GET", path, role=None, headers={"Authorization": "Bearer wrong"})
    assert answer.status == 200
    assert "sluice_admin_auth_failures_total 0" in (await api.ask("GET", "/metrics")).body.decode()


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_takes_style_from_here_and_nothing_else_from_anywhere(api: Control, path: str) -> None:
    async with await api.connect() as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head = b""
        while data := await stream.receive_some(65536):
            head += data
    lines = [line.decode().partition(": ") for line in head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
    sent = [(name.lower(), value) for name, _, value in lines]
    headers = dict(sent)
    assert len(headers) == len(sent), "two headers of one name"
    assert headers["content-security-policy"].split("; ") == [
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "style-src 'self'",
    ]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert len(headers["x-request-id"]) == 16


@pytest.mark.parametrize("path", PAGES)
async def test_head_says_the_same_without_a_body(api: Control, path: str) -> None:
    answers = [await api.ask(method, path, role=None) for method in ("GET", "HEAD")]
    shown, head = ({name: value for name, value in answer.headers.items() if name != "x-request-id"} for answer in answers)
    assert (answers[1].status, answers[1].body, head) == (200, b"", shown)
    assert head["content-length"] == str(len(PAGES[path].read()))


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_files_are_only_read(api: Control, path: str, method: str) -> None:
    answer = await api.ask(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert (await api.ask(method, path, role=None)).status == 401


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_of_another_name_is_not_shown_ours(api: Control, path: str) -> None:
    answer = await api.ask("GET", path, role=None, headers={"Host": "evil.example"})
    assert (answer.status, answer.headers["content-type"]) == (421, "application/problem+json")


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "/index.html",
        "/favicon.ico",
        "/style.css",
        "/dashboard",
        "/dashboard/",
        "/dashboard/index.html",
        "/dashboard/__init__.py",
        "/dashboard/style.css/",
        "/dashboard/../auth.py",
        "/dashboard/../../admin/dashboard/style.css",
        "/dashboard/%2e%2e/auth.py",
        "/dashboard/..%2fauth.py",
        "/dashboard%2Fstyle.css",
        "/dashboard/style.css%00",
        "/../../../../etc/passwd",
    ],
)
async def test_no_other_path_leads_to_a_file(api: Control, path: str) -> None:
    assert (await api.ask("GET", path, role=None)).status == 401
    assert (await api.ask("GET", path)).status == 404


async def test_two_gateways_show_the_same(tmp_path: Path) -> None:
    shown = []
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        async with control(tmp_path / folder) as api:
            shown.append([(await api.ask("GET", path, role=None)).body for path in PAGES])
    assert shown[0] == shown[1]


# ---- what stands in the files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_no_page_has_a_script_or_a_style_of_its_own(path: str) -> None:
    page = Reader(path)
    assert page.tags & {"script", "style", "iframe", "object", "embed", "form", "base", "img", "svg", "template"} == set()
    assert [name for name, _ in page.attributes if name.startswith("on") or name in {"style", "http-equiv"}] == []


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_links_lead_to_what_is_shown_without_a_token(path: str) -> None:
    router = Router(ROUTES)
    links = [value for name, value in Reader(path).attributes if name in FETCHING]
    assert NO_ICON in links
    for link in links:
        if link != NO_ICON:
            assert urlsplit(link)[:2] == ("", ""), f"{link}: another site"
            assert router.find("GET", urljoin(path, link))[0].role == 0, f"{link}: a browser sends no token"


@pytest.mark.parametrize("path", PAGES)
def test_no_file_names_another_site(path: str) -> None:
    text = PAGES[path].read().decode()
    assert set(re.findall(r"(?:\w+:)?//[^\s/'\"<]+", text)) <= {"http://127.0.0.1:9180"}
    assert re.findall(r"url\(|@import|@font-face|expression\(", text) == []


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_a_page_fits_a_telephone_and_a_dark_room(path: str) -> None:
    assert ("content", "width=device-width, initial-scale=1") in Reader(path).attributes
    style = PAGES["/dashboard/style.css"].read().decode()
    assert "color-scheme: light dark" in style
    assert "prefers-color-scheme: dark" in style


def test_paths_and_commands_on_the_front_page_exist() -> None:
    code = Reader("/").code
    paths = {text for text in code if text.startswith("/") and text != "/v1"}
    assert paths == {"/v1/openapi.json", "/metrics", "/livez", "/readyz"}
    router = Router(ROUTES)
    for path in paths:
        assert router.find("GET", path)[0].template == path
    commands = [text.split()[1:] for text in code if text.startswith("sluice ")]
    assert ["status"] in commands
    for words in commands:
        found: click.Command = sluice
        for word in words:
            if word != "--help":
                assert isinstance(found, click.Group), words
                known = found.get_command(click.Context(found), word)
                assert known is not None, words
                found = known
        assert words[-1] == "--help" or not isinstance(found, click.Group), words


# ---- the folder --------------------------------------------------------------------------------------------------------


def test_every_file_of_the_folder_is_a_page() -> None:
    files = {file.name for file in FOLDER.iterdir() if file.is_file() and file.suffix != ".py"}
    assert files == {page.file for page in PAGES.values()}


def test_every_file_is_in_the_wheel() -> None:
    patterns = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]["sluice.admin.dashboard"]
    for page in PAGES.values():
        assert any(PurePosixPath(page.file).match(pattern) for pattern in patterns), f"{page.file}: name its ending in pyproject.toml"
