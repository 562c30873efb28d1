"""The table of log events (`docs/reference/log_events.py`) is what the code logs: every event, its levels, its fields."""

from __future__ import annotations

import re
from itertools import chain

import log_events  # of docs/reference: `support.log_calls` has put it on the path
import pytest

from support.log_calls import ALWAYS, LOG_EVENTS, Place, places


@pytest.fixture(scope="module")
def code() -> list[Place]:
    return places()


def described(event: str) -> list[str]:
    """The events of the table that are meant: one, or all that begin so."""
    return [name for name in LOG_EVENTS if name == event or (event.endswith("*") and name.startswith(event[:-1]))]


def test_every_event_in_the_code_is_in_the_table_with_its_levels_and_fields(code: list[Place]) -> None:
    assert len(code) > 100
    for place in code:
        names = described(place.event)
        assert names, f"describe {place.event} of {place.where} in docs/reference/log_events.py"
        for name in names:
            assert place.levels <= set(LOG_EVENTS[name].levels), f"{place.event} in {place.where}"
            assert place.fields <= {*LOG_EVENTS[name].fields, *ALWAYS}, f"{place.event} in {place.where}"


def test_every_event_in_the_table_is_in_the_code(code: list[Place]) -> None:
    assert set(LOG_EVENTS) <= set(chain.from_iterable(described(place.event) for place in code))
    assert len(LOG_EVENTS) == sum(map(len, log_events.SECTIONS.values()))


def described_in_whole_sentences(name: str, event: log_events.LogEvent) -> bool:
    return (
        re.fullmatch(r"[a-z]+(_[a-z]+)+|[a-z]+", name) is not None
        and re.fullmatch(r"[A-Z`].*\.", event.meaning) is not None
        and bool(event.levels)
        and set(event.levels) <= {"debug", "info", "warning", "error", "critical"}
        and len(set(event.fields)) == len(event.fields)
    )


def test_every_event_is_described_in_whole_sentences() -> None:
    assert {name: event for name, event in LOG_EVENTS.items() if not described_in_whole_sentences(name, event)} == {}
