"""A setting of a rule is one row; what follows from it is complete for each of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from admin.http.bodies import RuleBody, decode, rule_text
from admin.views.rule_views import rule_view
from cli.rules import OPTIONS, add
from config.rule_texts import DEFAULTS, RuleTexts
from limiter.rules.errors import RuleError
from limiter.rules.rows import DURATION, SIZE, WEIGHT, WHOLE, RuleSetting
from limiter.rules.rule import RULE_SETTINGS, Rule

NEEDS: dict[str, dict[str, Any]] = {
    "routing_key_words": {"match": {"protocol": "amqp"}}, "ipv6_prefix": {"per": "client"}, "backoff": {"match": {"operation": "requeue"}},
}  # fmt: skip
each_row = pytest.mark.parametrize(("field", "row"), RULE_SETTINGS.items(), ids=RULE_SETTINGS)


def another_value(row: RuleSetting) -> object:
    """A value in JSON that is not the default."""
    if row.choices:
        return next(word for word in row.choices if word != row.default)
    return row.least if row.kind in {DURATION, SIZE, WHOLE} else 2.5 if row.kind == WEIGHT else True


@each_row
def test_it_is_taken_kept_and_shown_as_it_was_given(field: str, row: RuleSetting) -> None:
    given = another_value(row)
    body = decode(json.dumps({"limit": {"messages": "5/s"}, **NEEDS.get(row.key, {}), row.key: given}).encode(), RuleBody)
    rule = RuleTexts().read("orders", rule_text(body))
    assert getattr(rule, field) != row.default
    assert getattr(rule_view(rule, rule, None, None), row.key) == given
    shown = RuleTexts().show(rule)
    assert shown[row.key] == given
    assert RuleTexts().read("orders", {name: value for name, value in shown.items() if name != "name"}) == rule


@pytest.mark.parametrize(("field", "row"), [(field, row) for field, row in RULE_SETTINGS.items() if row.kind == WHOLE])
def test_a_rule_takes_the_numbers_that_its_file_may_say_and_no_others(field: str, row: RuleSetting) -> None:
    least, most = int(str(row.least)), int(str(row.most))
    rule = RuleTexts().read("orders", {"limit": {"messages": "5/s"}, **NEEDS[row.key], row.key: least})

    def with_number(number: int) -> Rule:
        changed: dict[str, Any] = {field: number}
        return replace(rule, **changed)

    assert getattr(with_number(most), field) == most
    for wrong in (least - 1, most + 1):
        with pytest.raises(RuleError, match=row.key):
            with_number(wrong)


@each_row
def test_it_is_an_option_of_rules_add(field: str, row: RuleSetting) -> None:
    assert (row.key in OPTIONS) != row.live
    assert row.key in {parameter.name for parameter in add.params}


@each_row
def test_its_default_is_left_out_of_what_is_shown(field: str, row: RuleSetting) -> None:
    shown = RuleTexts().show(RuleTexts().read("orders", {"limit": {"messages": "5/s"}}))
    assert (row.key in shown) == (row.key == "per")
    assert (row.key in DEFAULTS) == (row.default is not None and row.key != "per")
