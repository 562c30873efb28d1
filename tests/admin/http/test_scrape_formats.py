"""`/metrics` as OpenMetrics and compressed: what scrapers ask for, and what they get."""

from __future__ import annotations

import gzip
import zlib

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as read_text

from admin.http import scrape_formats
from gateway.counting.histogram import Histogram
from gateway.telemetry import exposition
from gateway.telemetry.metrics import COUNTER, HISTOGRAM, METRICS
from support.admin.admin_client import Control

PROMETHEUS_2 = (
    b"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def read_families(text: str) -> list[Family]:
    return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def every_metric() -> str:
    """One sample of each metric of the table."""
    lines: list[str] = []
    for name, metric in METRICS.items():
        values = tuple(f'a"{label}\\\n' for label in metric.labels)
        if metric.kind == HISTOGRAM:
            histogram = Histogram((0.1, 1.0))
            histogram.observe(0.5)
            lines += exposition.histogram(name, (values, histogram))
        else:
            lines += exposition.family(name, [(values, 1.5 if metric.kind == COUNTER else 2)])
    return "".join(lines)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROMETHEUS_2, True),
        (b"application/openmetrics-text", True),
        (b"Application/OpenMetrics-Text; version=1.0.0; q=0.5, text/plain; q=0.5", True),
        (b"application/openmetrics-text;q=0.4,text/plain;q=0.5", False),
        (b"application/openmetrics-text;q=0", False),
        (b"application/openmetrics-text;q=much", False),
        (b"text/plain", False),
        (b"*/*", False),
        (b"", False),
        (b"\xff;;=,,", False),
    ],
)
def test_openmetrics_is_for_those_that_name_it(accept: bytes, wanted: bool) -> None:
    assert scrape_formats.wants_openmetrics(accept) is wanted


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (b"gzip", True),
        (b"deflate, GZIP;q=0.1", True),
        (b"*", True),
        (b"gzip;q=0, *", False),
        (b"br", False),
        (b"identity", False),
        (b"", False),
    ],
)
def test_gzip_is_for_those_that_take_it(header: bytes, wanted: bool) -> None:
    assert scrape_formats.wants_gzip(header) is wanted


def test_every_metric_is_good_openmetrics_and_says_the_same() -> None:
    text = every_metric()
    lines = text.splitlines(keepends=True)
    found = read_families("".join(scrape_formats.openmetrics(exposition.pieces(lines))))
    assert [(family.name, family.type, family.documentation) for family in found] == [
        (family.name, family.type, family.documentation) for family in read_text(text)
    ]
    assert [[(s.name, s.labels, s.value) for s in family.samples] for family in found] == [
        [(s.name, s.labels, s.value) for s in family.samples] for family in read_text(text)
    ]


def test_it_ends_with_eof() -> None:
    assert list(scrape_formats.openmetrics(iter(["a 1\n"])))[-1] == "# EOF\n"


def test_compression_goes_piece_by_piece_and_loses_nothing() -> None:
    taken = 0

    def pieces() -> object:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield f"line {number}\n" * 200

    packed = scrape_formats.compress(pieces())  # type: ignore[arg-type]
    first = next(packed)
    assert taken == 1, "the first piece is compressed before the second is made"
    data = first + b"".join(packed)
    assert gzip.decompress(data).decode() == "".join(f"line {number}\n" * 200 for number in range(50))


async def test_a_scraper_gets_what_it_asks_for(api: Control) -> None:
    asked = {"Accept": PROMETHEUS_2.decode(), "Accept-Encoding": "gzip"}
    answer = await api.ask("GET", "/metrics", role="viewer", headers=asked)
    assert answer.headers["content-type"] == scrape_formats.OPENMETRICS
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept, Accept-Encoding")
    text = zlib.decompress(answer.body, scrape_formats.GZIP).decode()
    assert text.endswith("# EOF\n")
    assert "sluice_state_revision" in {family.name for family in read_families(text)}
