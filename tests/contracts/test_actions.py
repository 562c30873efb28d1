"""An action of a rule is one record; what follows from it is complete for each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.client_advice import CLIENT_ADVICE
from cli.why_text import action_text
from config.rules import RuleText
from config.sections import settings_of
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.actions import ACTION_RECORDS, ACTIONS, FALLBACKS, PATIENT, ActionRecord

PAGE = Path(__file__).parents[2] / "admin" / "dashboard"
each_record = pytest.mark.parametrize("record", ACTION_RECORDS.values(), ids=ACTIONS)


def test_the_words_that_rules_of_released_versions_have_stay() -> None:
    assert {"reject", "delay", "block", "drop", "close", "spool"} <= set(ACTIONS)
    assert {"delay", "drop", "close"} <= set(FALLBACKS)
    assert {"delay", "block", "spool"} <= set(PATIENT)


@each_record
def test_settings_of_its_own_are_settings_of_a_rule(record: ActionRecord) -> None:
    assert set(record.settings) <= set(settings_of(RuleText))


@each_record
def test_each_situation_has_advice_for_some_client(record: ActionRecord) -> None:
    known = {situation for advice in CLIENT_ADVICE for situation in advice.shows}
    assert {record.situation, *record.then} <= known


@each_record
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_people_are_told_what_it_does(record: ActionRecord, protocol: str) -> None:
    text = action_text({"action": record.name, "mode": "enforce", "max_delay": "3s", "fallback": "delay"}, protocol)
    assert text.startswith(f"{record.name}: ")
    assert "{" not in text
    assert ("3s" in text) == ("{max_delay}" in record.does)


@each_record
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_a_sentence_in_both_languages(record: ActionRecord, language: str) -> None:
    assert re.search(rf'\baction_{record.name}(_amqp)?: "', (PAGE / "messages" / f"{language}.js").read_text())
