"""Views of limits of what is not published to a topic: a client, a user, a consumer group, a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from admin.store.level_targets import subjects_of
from admin.store.state import StoredOverride
from admin.views.limit_views import Level
from limiter.rules.rule_set import UNRULED

if TYPE_CHECKING:
    from limiter.rules.level_keys import LevelKey
    from limiter.rules.rule_set import Effective, Identity, RuleSet


class LevelLimit(msgspec.Struct, frozen=True):
    """The limit of one client, user, listener, virtual host, exchange, group, namespace or queue, and its live change if there is one.

    `key`: as the command line takes it. `levels`: what holds for it; several where protocols differ. A rule that asks for more than the key
    says (a client's messages to one topic) is not among them until the key is changed live: it then has one bucket for all its messages.
    `remarks`: sentences on limits that are not enforced, on bursts that stay, and on why a live change may have no effect.
    """

    key: str
    operation: str
    per: str
    thing: str
    path: str
    revision: int
    override: StoredOverride | None
    levels: list[Level]
    remarks: list[str] = []


def holding(rules: RuleSet, key: LevelKey) -> list[Effective]:
    """The limits of a key at its own level, each bucket once."""
    found: dict[Identity, Effective] = {}
    for subject in subjects_of(key):
        for each in rules.matched(subject):
            if each.per == key.per and (each.identity not in found or found[each.identity].rule.name == UNRULED.name):
                found[each.identity] = each
    return list(found.values())
