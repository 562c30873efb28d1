"""Alerts as JSON: what Alertmanager posts to its webhook receivers (version 4), and what is posted to Alertmanager (API v2).

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
https://prometheus.io/docs/alerting/latest/clients/

All alerts of a gateway are one group of Alertmanager's: by alertname and gateway. A receiver that keeps one incident per groupKey has it
open until the last of them is resolved, because `status` is that of the whole group.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from admin.alerting.alerts import ALERT_NAME

if TYPE_CHECKING:
    from admin.alerting.alerts import Alert

NO_TIME: Final = "0001-01-01T00:00:00Z"  # Go's zero time: `endsAt` of what is firing
REPEATS_TO_END: Final = 4  # times repeat_every, after which Alertmanager takes an alert for resolved; as Prometheus has it

JSONObject = dict[str, Any]


def webhook_alert(alert: Alert, external_url: str) -> JSONObject:
    """One alert of a message of version 4."""
    return {
        "status": alert.status,
        "labels": alert.labels,
        "annotations": alert.annotations(),
        "startsAt": moment(alert.starts_at),
        "endsAt": NO_TIME if alert.ends_at is None else moment(alert.ends_at),
        "generatorURL": external_url,
        "fingerprint": alert.fingerprint,
    }


def webhook_message(
    alerts: Sequence[JSONObject], *, receiver: str, gateway: str, external_url: str, firing: bool, truncated: int
) -> JSONObject:
    """One message of version 4. `firing`: whether any alert of the group is; `truncated`: how many firing ones are not in it."""
    return {
        "version": "4",
        "groupKey": f"{{}}:{{alertname={json.dumps(ALERT_NAME)}, gateway={json.dumps(gateway)}}}",
        "truncatedAlerts": truncated,
        "status": "firing" if firing else "resolved",
        "receiver": receiver,
        "groupLabels": {"alertname": ALERT_NAME, "gateway": gateway},
        "commonLabels": common([alert["labels"] for alert in alerts]),
        "commonAnnotations": common([alert["annotations"] for alert in alerts]),
        "externalURL": external_url,
        "alerts": alerts,
    }


def alertmanager_alert(alert: Alert, external_url: str, now: float, repeat_s: float) -> JSONObject:
    """One alert of `POST /api/v2/alerts`. What is firing ends by itself where it is not repeated, should this gateway be gone.

    It ends after it began, where the wall clock was set back, too: else Alertmanager refuses the post.
    """
    return {
        "labels": alert.labels,
        "annotations": alert.annotations(),
        "startsAt": moment(alert.starts_at),
        "endsAt": moment(max(now, alert.starts_at) + REPEATS_TO_END * repeat_s if alert.ends_at is None else alert.ends_at),
        "generatorURL": external_url,
    }


def common(all_of: Sequence[dict[str, str]]) -> dict[str, str]:
    """What is the same in all of them."""
    if not all_of:
        return {}
    first, *others = all_of
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in others)}


def moment(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339, with microseconds: two states of an alert within a millisecond are still in order."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
