"""Rules that do not stand in a file: read from the admin API's JSON and from the state, and shown as they would stand in the rules file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from config.document import parse
from config.kinds import Reading
from config.problems import Problems
from config.rules import RuleKind, kind_of
from limiter.rules.rule import RULE_SETTINGS, Rule
from limiter.rules.rule_text import LIVE, RuleFault, RuleTextError

SOURCE: Final = "the rule"  # the name of the text in problems
RULE: Final = RuleKind()
DEFAULTS: Final[dict[str, Any]] = {  # settings that are left out where they are so
    "match": {},
    **{row.key: kind_of(row).show(row.default) for row in RULE_SETTINGS.values() if row.default is not None and row.key != "per"},
}


class RuleTexts:
    """The texts of rules, as `admin.store.live_rules.RuleTexts` wants them."""

    def read(self, name: str, text: Mapping[str, Any]) -> Rule:
        """The rule of that name; raises RuleTextError with all faults of its text."""
        problems = Problems()
        node = parse(json.dumps({"name": name, **text}, ensure_ascii=True).encode(), SOURCE, problems)
        rule = None if node is None else RULE.read(node, "rule", Reading(problems))
        if rule is None or problems.found:
            faults = [
                RuleFault(problem.path.removeprefix("rule").removeprefix("."), "; ".join(filter(None, (problem.message, problem.remedy))))
                for problem in problems.found
            ]
            raise RuleTextError(faults or [RuleFault("", "cannot be read")])
        return replace(rule, place=LIVE)

    def show(self, rule: Rule) -> dict[str, Any]:
        """The rule as it would stand in the rules file, without what is so by default."""
        shown = RULE.show(rule)
        assert isinstance(shown, dict)
        if rule.open_for_ns is None:
            shown.pop("breaker", None)
        return {name: value for name, value in shown.items() if DEFAULTS.get(name, ...) != value}

    def __repr__(self) -> str:
        return "<RuleTexts>"
