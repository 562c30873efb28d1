"""What the admin API adds to each snapshot of `GET /v1/stream`: live changes in force, quotas, and the limits of the topics shown.

Live changes are counted when the revision is another one, or one has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from admin.store.state import LIVE_RULES, rule_target
from admin.views.topic_limits import LimitsByTopic, with_limits
from common.views.snapshot import LiveChangesView, LiveChangeView, QuotasView

if TYPE_CHECKING:
    from admin.ports import OperatedGateway
    from admin.store.store import Store
    from common.views.snapshot import SnapshotView
    from limiter.rules.rule_set import RuleSet

MOST_CHANGES: Final = 50  # live changes; shown in a snapshot (guess)


class AdminGlance:
    """The admin's part of the snapshots."""

    def __init__(self, gateway: OperatedGateway, store: Store) -> None:
        self._gateway = gateway
        self._store = store
        self._revision = -1
        self._held: RuleSet | None = None  # when the changes were counted: what ends makes others
        self._changes = LiveChangesView()
        self.limits = LimitsByTopic(store)

    async def added_to(self, snapshot: SnapshotView, now: int) -> SnapshotView:
        """`snapshot` with `live_changes`, `quotas` and the topics' limits. `now`: monotonic ns."""
        topics = await with_limits(self.limits, self._gateway, snapshot.topics, now)
        rules = self._store.rules()
        if self._store.revision != self._revision or rules is not self._held:
            self._revision, self._held = self._store.revision, rules
            self._changes = summary(self._store)
        return replace(snapshot, topics=topics, live_changes=self._changes, quotas=quotas_in_force(self._store))

    def __repr__(self) -> str:
        return f"<AdminGlance of revision {self._revision}>"


def summary(store: Store) -> LiveChangesView:
    """Live changes that hold: how many, how many without an end, those that end next first and then the latest.

    What has ended may still be in the state, where that could not be written or the clock was set.
    """
    state = store.state
    found = [*state.keys.items(), *state.levels.items(), *((rule_target(name), change) for name, change in state.rules.items())]
    changes = [
        LiveChangeView(
            target=target, by=each.by, at=each.at, reason=each.reason, expires=each.expires, messages=each.messages, bytes=each.bytes
        )
        for target, each in found
        if store.override(target) is not None
    ]
    changes += [
        LiveChangeView(
            target=f"{LIVE_RULES}{name}", by=rule.by, at=rule.at, reason=rule.reason, expires=rule.expires, messages=None, bytes=None
        )
        for name, rule in state.live_rules.items()
        if store.live_rule(name) is not None
    ]
    ending = sorted((each for each in changes if each.expires), key=lambda each: str(each.expires))
    lasting = sorted((each for each in changes if not each.expires), key=lambda each: each.at, reverse=True)
    return LiveChangesView(
        total=len(changes),
        without_end=len(lasting),
        next_end=ending[0].expires if ending else None,
        items=[*ending, *lasting][:MOST_CHANGES],
    )


def quotas_in_force(store: Store) -> QuotasView | None:
    quotas = store.state.quotas
    if quotas is None:
        return None
    return QuotasView(date=quotas.date or None, computed_at=quotas.computed_at, at=quotas.at, by=quotas.by, topics=quotas.quotas)
