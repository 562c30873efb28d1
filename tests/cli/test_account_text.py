"""A topic's account in a sentence: the page and the terminal have the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli.account_text import BECAUSE, FATE, account_text, culprit, fate

WORDS = (Path(__file__).parents[2] / "admin/dashboard/messages/en.js").read_text()
ITEM: dict[str, Any] = {"waiting": 3900, "refused_per_second": 30.0, "received_per_second": 60.0}


@pytest.mark.parametrize(
    ("account", "text"),
    [
        ({"state": "refused"}, "50 % refused"),
        ({"state": "waiting", "last_waits_seconds": None}, "3,900 waiting, a new one will wait without end"),
        (
            {"state": "waiting", "first_waited_seconds": 65.0, "last_waits_seconds": 130.2, "unrefused_because": "no_confirms"},
            f"3,900 waiting, the oldest has waited 1min 5s, a new one will wait 2min 10s; {BECAUSE['no_confirms']}",
        ),
        (
            {"state": "would_refuse", "would_refuse_per_second": 15.0},
            "its limit is only tried (mode shadow), and all passes; it would refuse 25 %",
        ),
        ({"state": "within"}, ""),
        (None, ""),
    ],
)
def test_what_a_limit_does_is_one_sentence(account: dict[str, Any] | None, text: str) -> None:
    assert account_text({**ITEM, "account": account}) == text


@pytest.mark.parametrize(
    ("received", "passed", "text"), [(0.0, 0.0, "100 % refused"), (10.0, 3.0, "97 % refused"), (194.0, 3.0, "50 % refused")]
)
def test_what_has_waited_and_is_refused_later_is_a_part_of_what_is_settled(received: float, passed: float, text: str) -> None:
    """A burst and silence: 97/s were refused half a minute later of 0/s received, which was 9700000000000 %."""
    rates = {"received_per_second": received, "forwarded_per_second": passed, "refused_per_second": 97.0}
    assert account_text({"waiting": 0, **rates, "account": {"state": "refused"}}) == text


def test_the_culprit_has_user_group_and_share() -> None:
    assert culprit({"account": {"client": "10.1.0.9", "user": "billing", "client_share": 0.667}}) == "10.1.0.9 (billing) 67 %"
    of_group = {"client": "10.1.0.9", "user": None, "group": "night", "client_share": 1.0}
    assert culprit({"account": of_group}) == "10.1.0.9 (group night) 100 %"
    assert culprit({"account": {**of_group, "user": "key"}}) == "10.1.0.9 (key, group night) 100 %"
    assert culprit({"account": {"client": None}}) is None


def test_the_page_says_the_same() -> None:
    assert dict(re.findall(r'because_(\w+): "([^"]*)"', WORDS.replace("\u2019", "'"))) == BECAUSE


def test_what_becomes_of_what_waits_is_said_where_it_waits_in_the_gateway() -> None:
    assert fate({"account": {"state": "waiting", "unrefused_because": "block"}}) is None, "it is still with the publisher"
    assert fate({"account": {"state": "refused"}}) is None
    assert fate({}) is None
    page = dict(re.findall(r'fate_(\w+): "([^"]*)"', WORDS))
    told, silent = (page[name].replace(". ", "; ").rstrip(".") for name in ("told", "silent"))
    for because, text in {
        "no_confirms": silent,
        "one_way": silent,
        "delay": told,
        "spool": told + page["disk"].replace(" While", "; while").rstrip("."),
    }.items():
        assert fate({"account": {"state": "waiting", "unrefused_because": because}}) == FATE[because]
        assert FATE[because].casefold() == text.casefold()
