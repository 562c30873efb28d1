"""The dashboard's files: shown to everybody, and nothing in them that a browser would fetch, run or send elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tomllib
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urljoin, urlsplit

import pytest

from admin.authentication.auth import FORGIVE_EVERY_NS
from admin.dashboard import FOLDER, HTML, PAGES, UPLOT, VENDOR, VIEWS, DashboardFile
from admin.endpoints import ROUTES
from admin.endpoints.dashboard import FOR_EVER, StaticFile, files, revision, revision_of
from admin.http.routing import Router
from common.views.listeners import STATES
from limiter.operations import OPERATIONS
from limiter.rules.actions import ACTIONS
from limiter.rules.rule_words import PER
from support.admin.admin_client import Control, control
from support.cases import cases

PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"
PAGES_OF_HTML: Final = [path for path, page in PAGES.items() if page.content_type == HTML]
FETCHING: Final = {"href", "src", "srcset", "action", "formaction", "data", "poster", "ping", "background", "manifest"}
OURS: Final = [path for path in PAGES if not path.startswith(VENDOR)]
POLICY: Final = {
    "content-security-policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


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


async def test_every_file_is_shown_without_a_token(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
                answer = await api.ask("GET", path, role=None)
                assert (answer.status, answer.headers["content-type"], answer.body) == (200, PAGES[path].content_type, PAGES[path].read())


async def test_a_wrong_token_does_not_matter_and_no_failure_is_counted(api: Control) -> None:
    statuses = {path: (await api.ask("GET", path, role=None, headers={"Authorization": "Bearer wrong"})).status for path in PAGES}
    assert statuses == dict.fromkeys(PAGES, 200)
    assert "sluice_admin_auth_failures_total 0" in (await api.ask("GET", "/metrics")).body.decode()


async def test_a_browser_takes_style_from_here_and_nothing_else_from_anywhere(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
                said = await api.say(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                lines = [line.decode().partition(": ") for line in said.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
                sent = [(name.lower(), value) for name, _, value in lines]
                headers = dict(sent)
                assert len(headers) == len(sent), "two headers of one name"
                assert {name: headers[name] for name in POLICY} == POLICY
                assert headers["cache-control"] == (FOR_EVER if path.startswith(VENDOR) else "no-cache")
                assert len(headers["x-request-id"]) == 16


async def test_head_says_the_same_without_a_body(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
                answers = [await api.ask(method, path, role=None) for method in ("GET", "HEAD")]
                shown, head = ({name: value for name, value in answer.headers.items() if name != "x-request-id"} for answer in answers)
                assert (answers[1].status, answers[1].body, head) == (200, b"", shown)
                assert head["content-length"] == str(len(PAGES[path].read()))


async def test_a_browser_that_has_the_file_is_told_so(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
                for encoding in ("identity", "gzip"):
                    whole = await api.ask("GET", path, role=None, headers={"Accept-Encoding": encoding})
                    for sent in (whole.etag, f'"other", {whole.etag}', f"W/{whole.etag}", "*"):
                        known = {"Accept-Encoding": encoding, "If-None-Match": sent}
                        answer = await api.ask("GET", path, role=None, headers=known)
                        assert (answer.status, answer.body, answer.etag) == (304, b"", whole.etag)
                        assert "content-length" not in answer.headers
                        for name in ("cache-control", "content-security-policy"):
                            assert answer.headers[name] == whole.headers[name]
                    other = {"Accept-Encoding": encoding, "If-None-Match": '"other"'}
                    assert (await api.ask("GET", path, role=None, headers=other)).body == whole.body


async def test_what_gzip_makes_smaller_is_sent_so_to_who_takes_it(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
                plain = await api.ask("GET", path, role=None)
                packed = await api.ask("GET", path, role=None, headers={"Accept-Encoding": "gzip, br"})
                refused = await api.ask("GET", path, role=None, headers={"Accept-Encoding": "gzip;q=0"})
                assert (refused.body, refused.etag) == (plain.body, plain.etag)
                if "content-encoding" in packed.headers:
                    assert packed.headers["content-encoding"] == "gzip"
                    assert len(packed.body) < len(plain.body)
                    assert gzip.decompress(packed.body) == plain.body
                    assert packed.etag != plain.etag, "one strong ETag for two bodies"
                    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
                else:
                    assert packed.body == plain.body


def test_something_is_compressed() -> None:
    """Else the test above holds of nothing."""
    assert max(len(page.read()) for page in PAGES.values()) > 2000


VIEWED: Final = {
    "/": "/", "/topics?q=orders&sort=refused": "/topics", "/topics/amqp/%252F%2Forders%2Forder.created": "/topics/{protocol}/{topic}",
    "/t/amqp/%252F%2Forders%2Forder.created": "/t/{protocol}/{topic}", "/t/rocketmq/%3Cscript%3E": "/t/{protocol}/{topic}",
    "/topics/amqp/%2F/orders/a%20b": "/topics/amqp/{vhost}/{exchange}/{routing_key}",
    "/t/amqp/%2F/orders/": "/t/amqp/{vhost}/{exchange}/{routing_key}",
    "/quotas/amqp/%2F/amq.default/jobs": "/quotas/amqp/{vhost}/{exchange}/{routing_key}",
    "/connections": "/connections", "/connections/7": "/connections/{id}", "/brokers": "/brokers", "/changes": "/changes",
    "/changes/42": "/changes/{revision}", "/quotas": "/quotas", "/quotas/rocketmq/orders": "/quotas/{protocol}/{topic}",
    "/configuration?lang=zh": "/configuration",
}  # fmt: skip


@pytest.mark.parametrize("path", VIEWED)
async def test_every_screen_has_an_address(api: Control, path: str) -> None:
    answer = await api.ask("GET", path, role=None)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, HTML, PAGES["/"].read())


def test_every_address_of_a_screen_is_tried() -> None:
    assert set(VIEWED.values()) == set(VIEWS)


async def test_a_token_in_the_address_of_a_screen_is_refused(api: Control) -> None:
    answer = await api.ask("GET", f"/topics?token={api.token()}", role=None)
    assert answer.status == 400
    assert api.token() not in answer.body.decode()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_files_are_only_read(api: Control, method: str) -> None:
    with cases() as case:
        for number, path in enumerate(PAGES):
            with case(path):
                api.fail_at(number * FORGIVE_EVERY_NS)
                answer = await api.ask(method, path)
                assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
                assert (await api.ask(method, path, role=None)).status == 401


async def test_a_page_of_another_name_is_not_shown_ours(api: Control) -> None:
    with cases() as case:
        for path in PAGES:
            with case(path):
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


BROWSER: Final = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nosuch", "/topics/nosuch", "/index.html", "/dashboard/", "/favicon.ico?a=b"])
@pytest.mark.parametrize("role", [None, "viewer"])
async def test_a_browser_gets_a_page_in_words_where_there_is_nothing(api: Control, path: str, role: str | None) -> None:
    """Found by a reader: a mistyped address answered with raw JSON, and with nothing to click."""
    answer = await api.ask("GET", path, role=role, headers=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (404, HTML)
    assert '<a href="/">' in answer.body.decode()
    assert answer.headers["content-security-policy"] == (await api.ask("GET", "/", role=None)).headers["content-security-policy"]
    head = await api.ask("HEAD", path, role=role, headers=BROWSER)
    assert (head.status, head.body, head.headers["content-length"]) == (404, b"", str(len(answer.body)))


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0", None])
async def test_a_program_gets_json_where_there_is_nothing(api: Control, accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    for role, status in ((None, 401), ("viewer", 404)):
        answer = await api.ask("GET", "/nosuch", role=role, headers=headers)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize("path", ["/v1/nosuch", "/v1/", "/v1/topics", "/metrics"])
async def test_a_browser_gets_json_of_what_is_the_apis(api: Control, path: str) -> None:
    answer = await api.ask("GET", path, role=None, headers=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (401, "application/problem+json")
    assert (await api.ask("POST", "/nosuch", role=None, headers=BROWSER)).status == 401


async def test_a_browser_that_guesses_tokens_is_counted_and_stopped(api: Control) -> None:
    """The page that there is nothing says nothing of a token, and is no way round the brake."""
    headers = {**BROWSER, "Authorization": "Bearer wrong"}
    api.fail_at(0)
    statuses = {(await api.ask("GET", "/nosuch", role=None, headers=headers)).status for _ in range(40)}
    assert statuses == {404, 429}
    assert "sluice_admin_auth_failures_total 40" in (await api.ask("GET", "/metrics")).body.decode()


async def test_two_gateways_show_the_same(tmp_path: Path) -> None:
    shown = []
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        async with control(tmp_path / folder) as api:
            shown.append([(await api.ask("GET", path, role=None)).body for path in PAGES])
    assert shown[0] == shown[1]


# ---- what stands in the files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_no_page_has_a_script_or_a_style_within(path: str) -> None:
    """Scripts and styles are files: the policy forbids what stands in the page itself."""
    page = Reader(path)
    assert page.tags & {"style", "iframe", "object", "embed", "form", "base", "img", "svg", "template"} == set()
    assert [name for name, _ in page.attributes if name.startswith("on") or name in {"style", "http-equiv"}] == []
    assert re.findall(r"<script(?![^>]*\ssrc=)[^>]*>|<script[^>]*>(?!</script>)", PAGES[path].read().decode()) == []


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_links_lead_to_what_is_shown_without_a_token(path: str) -> None:
    router = Router(ROUTES)
    links = [value for name, value in Reader(path).attributes if name in FETCHING]
    assert len(links) > 3
    for link in links:
        assert urlsplit(link)[:2] == ("", ""), f"{link}: another site"
        assert link.startswith("/"), f"{link}: screens are at paths of several depths"
        assert router.find("GET", urljoin(path, link))[0].role == 0, f"{link}: a browser sends no token"


def test_no_file_names_another_site_or_reads_markup() -> None:
    """Nothing reads a text as markup. The one address is the name that SVG elements go by, never asked for."""
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc"
    with cases() as case:
        for path in OURS:
            with case(path):
                text = PAGES[path].read().decode()
                assert set(re.findall(r"\w+://[^\s/'\"<]+", text)) <= {"http://www.w3.org"}
                assert re.findall(r"url\(|@import|@font-face|expression\(", text) == []
                assert re.findall(markup, text) == []


def test_what_a_script_imports_is_served() -> None:
    """With its ending, and from here; so nothing is asked for that is refused."""
    seen = 0
    for path in OURS:
        if path.endswith(".js"):
            text = PAGES[path].read().decode()
            for module in re.findall(r"^(?:import|export)\b.*?from \"([^\"]+)\"|\bimport\(\"([^\"]+)\"\)", text, re.MULTILINE):
                assert urljoin(path, "".join(module)) in PAGES, f"{path} imports {module}"
                seen += 1
            for module in re.findall(r"\bimport\(`([^`]+)`\)", text):  # one for each language
                for language in ("en", "zh"):
                    assert urljoin(path, re.sub(r"\$\{\w+(\(\))?\}", language, module)) in PAGES, f"{path} imports {module}"
    assert seen > 50


def messages(language: str) -> dict[str, str]:
    """Key -> text of a language's module."""
    text = PAGES[f"/dashboard/messages/{language}.js"].read().decode()
    return {key: json.loads(f'"{value}"') for key, value in re.findall(r'(?<![\w"])(\w+): "((?:[^"\\]|\\.)*)"', text)}


def test_every_text_is_there_in_each_language() -> None:
    english, chinese = messages("en"), messages("zh")
    assert len(english) > 300
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        places = sorted(set(re.findall(r"\{\w+\}", text)))
        assert sorted(set(re.findall(r"\{\w+\}", chinese[key]))) == places, key
    scripts = "".join(PAGES[path].read().decode() for path in OURS if path.endswith(".js"))
    for key in re.findall(r'\bt\("(\w+)"', scripts):
        assert key in english or key == "key", f"{key}: no text of this name"


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("per_", PER),
        ("upstream_", STATES),
        ("because_", set(ACTIONS) - {"reject"}),
        ("action_", set(ACTIONS) - {"reject"}),
        ("of_", set(OPERATIONS) - {"produce"}),
    ],
)
def test_every_word_of_the_api_has_a_text(prefix: str, words: Collection[str]) -> None:
    """Else the page shows the key."""
    assert words
    assert {f"{prefix}{word}" for word in words} - messages("en").keys() == set()


@pytest.mark.parametrize("path", PAGES_OF_HTML)
def test_a_page_fits_a_telephone_and_a_dark_room(path: str) -> None:
    assert ("content", "width=device-width, initial-scale=1") in Reader(path).attributes
    style = PAGES["/dashboard/style.css"].read().decode()
    assert "color-scheme: light dark" in style
    colours = re.findall(r"^  --[a-z-]+: (.+);$", style, re.MULTILINE)
    assert len(colours) > 15
    assert all("light-dark(" in colour for colour in colours), "a colour for light and for dark"


def test_vendored_files_are_what_they_were() -> None:
    folder = FOLDER / UPLOT
    sums = {line.split()[1]: line.split()[0] for line in (folder / "SHA256.txt").read_text().splitlines()}
    assert sums == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.name != "SHA256.txt"}


def test_all_files_together_are_small() -> None:
    sent = sum(len(gzip.compress(PAGES[path].read(), 9)) for path in {page.file: path for path, page in PAGES.items()}.values())
    assert 30_000 < sent < 200_000


# ---- the folder --------------------------------------------------------------------------------------------------------


def test_every_file_of_the_folder_is_a_page() -> None:
    files = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.is_file() and file.suffix not in {".py", ".pyc"}}
    assert files == {page.file for page in PAGES.values()}


def test_every_file_is_in_the_wheel() -> None:
    patterns = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]["sluice.admin.dashboard"]
    for page in PAGES.values():
        ending = PurePosixPath(page.file).suffix
        assert f"**/*{ending}" in patterns, f"{page.file}: name its ending in pyproject.toml"


@pytest.mark.parametrize("path", ["/dashboard/app.js", "/dashboard/messages/zh.js", "/dashboard/style.css"])
def test_a_file_that_differs_makes_another_revision(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By which an open page finds that its gateway was upgraded."""
    assert revision_of(files().values()) == revision()
    name = PAGES[path].file
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(PAGES[path].read() + b"\n")
    monkeypatch.setattr("admin.dashboard.FOLDER", tmp_path)
    assert revision_of({**files(), path: StaticFile(path, DashboardFile(name, ""))}.values()) != revision()
