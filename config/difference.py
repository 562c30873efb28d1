"""What a changed configuration means for a running gateway: what a reload puts in force, and what needs a restart (`reloading.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

from config.kinds import JSON
from config.reloading import merge
from config.rules import RULES
from config.settings import ROOT, Settings
from config.urls import shown_url
from limiter.rules.rule import Rule

_CONTENT: Final = attrgetter(*(each.name for each in dataclasses.fields(Rule) if each.name != "place"))  # a rule but for where it stands


def diff(old: Settings, new: Settings) -> dict[str, list[str]]:
    """What changes from `old` to `new`, one line each: what is in force on a reload, and what needs a restart."""
    in_force: list[str] = []
    before = {rule.name: rule for rule in old.rules}
    after = {rule.name: rule for rule in new.rules}
    for name in [*before, *(each for each in after if each not in before)]:
        if name not in after:
            in_force.append(f"rule {name}: removed")
        elif name not in before:
            in_force.append(f"rule {name}: added")
        else:
            in_force.extend(_changed_rule(before[name], after[name]))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        in_force.append("rules: order changed")
    now = merge(old, new)
    was, holds, will_be = (replace(each, rules=()).describe() for each in (old, now, new))
    keys = [key for key in ROOT.settings if key not in {"rules", "rules_file"}]
    in_force += [line for key in keys for line in _changes(was.get(key), holds.get(key), key)]
    needs_restart = [line for key in keys for line in _changes(holds.get(key), will_be.get(key), key)]
    return {"in_force": in_force + hidden_differences(old, now), "needs_restart": needs_restart + hidden_differences(now, new)}


def hidden_differences(old: Settings, new: Settings) -> list[str]:
    """URLs that differ only in what is not shown of them."""
    before, after = _urls(old), _urls(new)
    return [
        f"{path}: {shown_url(url)} -> another path, query or user there"
        for path, url in after.items()
        if path in before and before[path] != url and shown_url(before[path]) == shown_url(url)
    ]


def _urls(settings: Settings) -> dict[str, str]:
    """Every URL by its path, of webhooks by their names."""
    found = {f"webhooks.{each.label}.url": each.url for each in settings.webhooks if each.url is not None}
    if settings.fleet is not None:
        found["fleet.redis.url"] = settings.fleet.redis.url
    if settings.tracing is not None:
        found["tracing.endpoint"] = settings.tracing.endpoint
    return found


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Every value in which two described configurations (`Settings.describe`) differ: `admin.bind: 127.0.0.1:1 -> 127.0.0.1:2`."""
    lines = [line for key in dict.fromkeys([*old, *new]) for line in _changes(old.get(key), new.get(key), key)]
    before, after = _rule_names(old), _rule_names(new)
    if before != after and sorted(before) == sorted(after):
        lines.append("rules: order changed")
    return lines


def _rule_names(described: Mapping[str, object]) -> list[str]:
    rules = described.get("rules")
    return [str(rule.get("name")) for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _changed_rule(old: Rule, new: Rule) -> list[str]:
    """The differences between two rules of one name, whatever their line. Comparing first costs a hundredth of showing both."""
    if _CONTENT(old) == _CONTENT(new):
        return []
    return _changes(_render_rule(old), _render_rule(new), f"rule {old.name}: ")


def _render_rule(rule: Rule) -> JSON:
    return RULES.item.show(dataclasses.replace(rule, place=""))


def _changes(old: object, new: object, path: str) -> list[str]:
    """The leaves in which two described values differ: `admin.bind: 127.0.0.1:1 -> 127.0.0.1:2`."""
    if old == new:
        return []
    joint = path if path.endswith(": ") else f"{path}."
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in [*old, *(each for each in new if each not in old)]
            for line in _changes(old.get(key), new.get(key), f"{joint}{key}")
        ]
    if isinstance(old, list) and isinstance(new, list):
        named_old, named_new = _index_by_name(old), _index_by_name(new)
        if named_old is not None and named_new is not None:
            return _changes(named_old, named_new, path)
    return [f"{path}: {_text(old)} -> {_text(new)}"]


def _index_by_name(items: list[object]) -> dict[str, object] | None:
    """A list of named things by their names; None where they have none."""
    by_name = {str(item["name"]): item for item in items if isinstance(item, dict) and "name" in item}
    return {**by_name} if len(by_name) == len(items) else None


def _text(value: object) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items()) + "}"
    return str(value)
