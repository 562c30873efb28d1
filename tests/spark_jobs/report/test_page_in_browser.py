"""The report as a person sees it: a browser opens the file, wide and narrow, light and dark; nothing goes wrong, nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.report import write_reports
from support.browser import Browser, chromium
from support.models import quota_evidence

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOUND = "[...document.querySelectorAll('#all tbody tr')].filter(row => !row.hidden).map(row => row.cells[0].textContent.trim())"
WIDER_THAN_THE_WINDOW = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        yield made


def written(folder: Path, count: int = 12) -> Path:
    now = quota_evidence.snapshot(count)
    file = folder / "report.html"
    file.write_bytes(write_reports(now, quota_evidence.before(now), {"outcome": "Published to 2 gateways."})["report.html"])
    return file


def contrast(browser: Browser, selector: str) -> float:
    """Contrast of an element's text against the page, as WCAG 2 has it."""
    script = f"""(() => {{
        const light = text => {{
            const part = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(one => one / 255)
                .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
            return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
        }};
        const one = light(getComputedStyle(document.querySelector({selector!r})).color);
        const other = light(getComputedStyle(document.body).backgroundColor);
        return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    }})()"""
    return float(browser.value(script))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 640, 360], ids=["wide", "80-columns", "phone"])
def test_the_page_is_whole_at_any_width_and_in_any_light(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    file = written(tmp_path)
    browser.open(file, width=width, dark=dark)
    text = browser.value("document.body.innerText").replace("\u00a0", " ")
    assert "Expected to be refused on Sat 21 Nov: 0.0207 % of the messages; the target is 0.1 %. 13 topics: 11 as computed" in text
    assert text.index("Why did my quota change?") < text.index("All topics together") < text.index("What the words mean")
    assert browser.value(WIDER_THAN_THE_WINDOW) <= 0, "the page scrolls sideways"
    charts = browser.value("[...document.querySelectorAll('.card > svg')].filter(svg => svg.checkVisibility()).length")
    assert charts == 12
    assert contrast(browser, "body") > 7
    assert all(contrast(browser, selector) > 4.5 for selector in (".quiet", "summary", ".good"))
    assert browser.errors == []
    assert browser.requests == [file.as_uri()]


def test_a_hostile_name_is_a_name(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path))
    names = browser.value(FOUND)
    assert any(name.startswith('<script>alert("x")</script>|`*[a](http://evil.example)··[31m') for name in names)
    assert browser.value("document.querySelectorAll('script').length") == 1
    assert browser.value("document.querySelectorAll('a[href]').length") == 0
    assert browser.errors == []


def test_what_a_page_would_fetch_or_run_is_blocked(browser: Browser, tmp_path: Path) -> None:
    """The policy in the head, should a name ever slip through."""
    file = written(tmp_path)
    file.write_text(file.read_text().replace("<h1>", '<script>window.ran = 1</script><img src="http://127.0.0.1:9/x.png"><h1>'))
    browser.open(file)
    assert browser.value("window.ran") is None
    assert len([error for error in browser.errors if "Content Security Policy" in error]) == 2


def test_the_table_of_all_topics_is_searched_and_sorted(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path))
    browser.value("const box = document.querySelector('#find input'); box.value = 'MAIL'; box.dispatchEvent(new Event('input'))")
    browser.value(
        "new Promise(done => { const look = () => document.querySelector('#found').textContent ? done() : setTimeout(look, 10); look() })"
    )
    assert sorted(browser.value(FOUND)) == ["mail-00004 rocketmq", "mail-00009 rocketmq"]
    assert browser.value("document.querySelector('#found').textContent") == "2 of 12 topics"
    browser.value("[...document.querySelectorAll('#all th button')].find(button => button.textContent === 'messages').click()")
    numbers = browser.value("[...document.querySelectorAll('#all tbody tr')].map(row => +row.cells[1].dataset.v)")
    assert numbers == sorted(numbers, reverse=True)
    assert browser.errors == []


def test_10_000_topics_open_at_once(browser: Browser, tmp_path: Path) -> None:
    """The table is closed then, and charts below the window are not drawn yet: the elements that are laid out are few."""
    file = written(tmp_path, 10_000)
    assert file.stat().st_size < 10_000_000
    browser.open(file)
    assert browser.value("document.querySelectorAll('#all tbody tr').length") == 10_000
    assert browser.value("document.querySelector('#all').checkVisibility()") is False
    assert "9,800 topics without a chart here" in browser.value("document.body.innerText")
    browser.value("document.querySelector('#all').closest('details').open = true")
    assert browser.value("document.querySelector('#all').checkVisibility()") is True
    assert browser.errors == []
