"""What a receiver has not been told: the latest state of each alert, bounded."""

from __future__ import annotations

from admin.alerting.alerts import Alert, Key
from admin.alerting.pending import MAX_PER_POST, MAX_RESOLVED, Pending
from support.overruns import GATEWAY, SINCE, overrun


def alert_of(thing: str) -> Alert:
    return Alert(overrun(thing), GATEWAY)


def firing(*alerts: Alert) -> dict[Key, Alert]:
    return {alert.key: alert for alert in alerts if alert.ends_at is None}


def test_fire_and_recovery_while_the_receiver_is_away_are_one_state() -> None:
    pending, alert = Pending(), alert_of("a")
    pending.put(alert)
    alert.end(SINCE + 5)
    pending.put(alert)
    assert [(one.status, one.starts_at, one.ends_at) for one in pending.batch({}).alerts] == [("resolved", SINCE, SINCE + 5)]


def test_an_alert_that_fires_again_is_firing_in_the_end() -> None:
    pending, first, again = Pending(), alert_of("a"), alert_of("a")
    pending.put(first)
    first.end(SINCE + 5)
    pending.put(first)
    pending.put(again)
    assert pending.batch(firing(again)).alerts == [again]


def test_what_changes_during_a_post_is_told_by_the_next() -> None:
    pending, alert = Pending(), alert_of("a")
    pending.put(alert)
    batch = pending.batch(firing(alert))
    alert.end(SINCE + 5)
    pending.put(alert)
    pending.told(batch)
    assert len(pending) == 1
    pending.told(pending.batch({}))
    assert not pending


def test_a_post_has_what_has_changed_first_and_counts_what_has_no_room() -> None:
    pending = Pending()
    alerts = [alert_of(str(number)) for number in range(MAX_PER_POST + 10)]
    for alert in alerts[5:]:
        pending.put(alert)
    batch = pending.batch(firing(*alerts))
    assert (batch.alerts, batch.truncated) == (alerts[5 : 5 + MAX_PER_POST], 10)
    pending.told(batch)
    batch = pending.batch(firing(*alerts))
    assert (batch.alerts[:5], len(batch.alerts), batch.truncated) == (alerts[5 + MAX_PER_POST :], MAX_PER_POST, 10)
    pending.told(batch)
    assert not pending


def test_a_repeat_tells_what_fires_and_nothing_twice() -> None:
    pending, one, other = Pending(), alert_of("a"), alert_of("b")
    pending.put(other)
    pending.repeat(firing(one, other))
    assert pending.batch(firing(one, other)).alerts == [other, one]


def test_what_is_over_and_untold_is_bounded_and_counted_and_what_fires_stays() -> None:
    pending, fires = Pending(), alert_of("fires")
    pending.put(fires)
    for number in range(MAX_RESOLVED + 3):
        alert = alert_of(str(number))
        alert.end(SINCE + number)
        pending.put(alert)
    assert (len(pending), pending.dropped) == (MAX_RESOLVED + 1, 3)
    told = pending.batch(firing(fires)).alerts
    assert [alert.labels["thing"] for alert in told[:2]] == ["fires", "3"]
    while pending:
        pending.told(pending.batch({}))
    assert pending.dropped == 3
