"""What the admin API adds to each snapshot of `GET /v1/stream`: live changes in force, quotas, and the limits of the topics shown.

Live changes are counted when the revision is another one, or one has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admin.store.state import LIVE_RULES, rule_target
from admin.views.topic_limits import LimitsByTopic, with_limits

if TYPE_CHECKING:
    from admin.ports import Gateway
    from admin.store.store import Store
    from limiter.rules.rule_set import RuleSet

JSONObject = dict[str, Any]

MOST_CHANGES: Final = 50  # live changes; shown in a snapshot (guess)


class Glance:
    """The admin's part of the snapshots."""

    def __init__(self, gateway: Gateway, store: Store) -> None:
        self._gateway = gateway
        self._store = store
        self._revision = -1
        self._held: RuleSet | None = None  # when the changes were counted: what ends makes others
        self._changes: JSONObject = {}
        self.limits = LimitsByTopic(store)

    async def added_to(self, snapshot: JSONObject, now: int) -> JSONObject:
        """`snapshot` with `live_changes`, `quotas` and the topics' limits. `now`: monotonic ns."""
        topics = await with_limits(self.limits, self._gateway, snapshot.get("topics", []), now)
        return {**snapshot, **self._of_state(), "topics": topics}

    def _of_state(self) -> JSONObject:
        rules = self._store.rules()
        if self._store.revision != self._revision or rules is not self._held:
            self._revision, self._held = self._store.revision, rules
            self._changes = summary(self._store)
        return self._changes

    def __repr__(self) -> str:
        return f"<Glance of revision {self._revision}>"


def summary(store: Store) -> JSONObject:
    """Live changes that hold: how many, how many without an end, those that end next first and then the latest; and the quotas in force.

    What has ended may still be in the state, where that could not be written or the clock was set.
    """
    state = store.state
    found = [*state.keys.items(), *state.levels.items(), *((rule_target(name), change) for name, change in state.rules.items())]
    changes: list[JSONObject] = [
        {"target": target, "by": each.by, "at": each.at, "reason": each.reason, "expires": each.expires, "messages": each.messages,
         "bytes": each.bytes}
        for target, each in found
        if store.override(target) is not None
    ]  # fmt: skip
    changes += [
        {"target": f"{LIVE_RULES}{name}", "by": rule.by, "at": rule.at, "reason": rule.reason, "expires": rule.expires, "messages": None,
         "bytes": None}
        for name, rule in state.live_rules.items()
        if store.live_rule(name) is not None
    ]  # fmt: skip
    ending = sorted((each for each in changes if each["expires"]), key=lambda each: str(each["expires"]))
    lasting = sorted((each for each in changes if not each["expires"]), key=lambda each: str(each["at"]), reverse=True)
    quotas = state.quotas
    return {
        "live_changes": {
            "total": len(changes),
            "without_end": len(lasting),
            "next_end": ending[0]["expires"] if ending else None,
            "items": [*ending, *lasting][:MOST_CHANGES],
        },
        "quotas": None
        if quotas is None
        else {"date": quotas.date or None, "computed_at": quotas.computed_at, "at": quotas.at, "by": quotas.by, "topics": quotas.quotas},
    }
