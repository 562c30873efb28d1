"""One limit that is over, as an alert in Alertmanager's words: labels that say which it is, annotations that say what is known of it.

Labels are the alert's identity for receivers, so they hold only what stays while it lasts. Who sends most, and what it cost, stand in the
annotations, which are written anew for each post. Names of topics, clients and users are chosen by strangers: what is not printable is
escaped, what is long is cut and gets a part of its hash, so that two long names are two alerts.

A thousand limits may be over, and are compared once a second on the event loop's thread. So they are told apart by a tuple (`Key`). Labels,
fingerprint and annotations are made for what is posted: 64 at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from common import log, shell_words
from common.figures import duration, percent
from limiter.operations import OPERATION_RECORDS
from limiter.protocols import PROTOCOL_NAMES
from limiter.topics import parts_of_path
from limiter.units import parse_rate

if TYPE_CHECKING:
    from common.views.limits import OverLimitView

ALERT_NAME: Final = "SluiceLimitReached"
RUNBOOK: Final = "docs/runbooks.md#sluicethrottledtoolong"  # as the alerts of deploy/prometheus name theirs
MAX_LABEL_CHARS: Final = 200  # characters; of one value; a guess: longer than names are, and a post of 64 alerts stays below 1 MB
MAX_COMMAND_CHARS: Final = 500  # characters; of a topic within a command; a longer one is not shown: half of it would be wrong
HASH_CHARS: Final = 12  # hexadecimal digits; behind a name that is not shown as it is
STOPPED: Final = "The gateway has stopped, so nothing is limited by it any more."

Key = tuple[str, str, str, str, str]  # what tells a limit from others: per, thing, rule, operation, and of a topic its protocol


class AlertSender(NamedTuple):
    """Who posts."""

    gateway: str  # its name
    external_url: str  # where its admin port is


class Alert:
    """One limit over its rate, from when it was first seen so until it is over. `facts` are the latest."""

    def __init__(self, facts: OverLimitView, gateway: str) -> None:
        self.key = facts.key()
        self.facts = facts
        self._gateway = gateway
        self.starts_at = facts.since  # seconds since 1970
        self.ends_at: float | None = None  # the same; None: it is firing
        self.because = ""  # why it ended, where that is not that the limit has recovered

    @cached_property
    def labels(self) -> dict[str, str]:
        return labels_of(self.facts, self._gateway)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)

    @property
    def status(self) -> str:
        return "firing" if self.ends_at is None else "resolved"

    def end(self, now: float, because: str = "") -> None:
        self.ends_at = max(now, self.starts_at)  # the wall clock may jump
        self.because = because

    def annotations(self) -> dict[str, str]:
        facts = self.facts
        found = {"summary": f"{subject(facts)} is over its limit of {facts.limit} (rule {safe(facts.rule)})"}
        found["description"] = description(self)
        found["command"] = command(facts)
        found["runbook"] = RUNBOOK
        return found

    def __repr__(self) -> str:
        return f"<Alert {self.status} {self.key!r}>"


def labels_of(facts: OverLimitView, gateway: str) -> dict[str, str]:
    """What tells this alert from all others. Alertmanager takes a label without a value for none, so there is none."""
    per = facts.per
    found = {
        "alertname": ALERT_NAME,
        "severity": "warning",
        "gateway": gateway,
        "per": per,
        "thing": facts.thing,
        "rule": facts.rule,
        "operation": facts.operations or facts.operation,
    }
    if per == "topic" and facts.thing:  # the overflow bucket is for topics of all protocols
        found |= {"protocol": facts.protocol, "topic": facts.thing}
    elif per == "listener":
        found["listener"] = facts.thing
    return {name: text for name, text in ((name, safe(value)) for name, value in found.items()) if text}


def safe(text: object) -> str:
    """A text of strangers as valid UTF-8 of bounded length, on one line. What is changed gets a part of its hash."""
    given = str(text)
    if len(given) <= MAX_LABEL_CHARS and given.isprintable():
        return given
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in given[:MAX_LABEL_CHARS])
    digest = hashlib.sha256(given.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARS]
    return f"{shown[: MAX_LABEL_CHARS - HASH_CHARS - 2]}~{digest}"


def fingerprint(labels: Mapping[str, str]) -> str:
    """The identity of an alert as Alertmanager computes it: FNV-1a, 64 bits, over its labels by name."""
    found = 14695981039346656037
    for name, text in sorted(labels.items()):
        for byte in b"%b\xff%b\xff" % (name.encode(), text.encode()):
            found = (found ^ byte) * 1099511628211 & 0xFFFF_FFFF_FFFF_FFFF
    return f"{found:016x}"


# ---- words -------------------------------------------------------------------------------------------------------------


def subject(facts: OverLimitView) -> str:
    """What is over its limit, in words."""
    per, thing = facts.per, safe(facts.thing)
    if per == "topic":
        what = PROTOCOL_NAMES[facts.protocol].title + " topic"
        return f"{what} {thing}" if thing else "the overflow bucket of topics"
    if per == "rule":
        return f"rule {safe(facts.rule)}"
    return f"{per} {thing}" if thing else f"whoever has no {per} of its own"


def description(alert: Alert) -> str:
    facts = alert.facts.settled()
    origin = safe(facts.origin) + (f", {safe(facts.place)}" if facts.place else "")
    what = OPERATION_RECORDS[facts.operation].what
    words = [f"Since {log.moment(alert.starts_at)} {what} is over the limit of {facts.limit} (origin: {origin})."]
    if alert.ends_at is None:
        words.append(f"Last offered rate: {facts.rate} messages/s.")
    else:
        words[0] = (
            f"From {log.moment(alert.starts_at)} to {log.moment(alert.ends_at)} {what} was over the limit of {facts.limit} "
            f"(origin: {origin})."
        )
    words.append(f"So far {facts.refused} messages were refused and {facts.delayed} had to wait.")
    if facts.waiting and alert.ends_at is None:
        words.append(f"{facts.waiting} messages wait now{next_wait(facts.waiting, facts.limit)}.")
    user = f", user {safe(facts.user)}" if facts.user else ""
    user += f", group {safe(facts.group)}" if facts.group else ""
    others = f", the worst of {facts.clients}: {percent(facts.client_share)} of it" if facts.clients > 1 else ""
    client = f"client {safe(facts.client)}{user}"
    words.append(f"Most over it: {client}, by listener {safe(facts.listener)}, to {safe(facts.topic)}{others}.")
    if alert.because:
        words.append(alert.because)
    return " ".join(words)


def next_wait(waiting: int, limit: str) -> str:
    """How long a message that comes now waits behind those that wait already, where `limit` is one of messages alone."""
    try:
        rate = parse_rate(limit)
    except ValueError:
        return ""
    return f", a new one will wait {duration(round(waiting / rate.per_second))}" if rate.per_second else ", without end at this limit"


def command(facts: OverLimitView) -> str:
    """What to run to see more: `sluice why` of the topic that was over the limit last, quoted for a shell."""
    topic = facts.topic
    names = PROTOCOL_NAMES.get(facts.protocol)
    if names is None or len(topic) > MAX_COMMAND_CHARS or not topic.isprintable():
        return "sluice topics --sort refused"
    words = [topic] if len(names.topic_parts) == 1 else [part.decode(errors="replace") for part in parts_of_path(topic)]
    if len(words) != len(names.topic_parts) or any(not word.isprintable() or "\ufffd" in word for word in words):
        return "sluice topics --sort refused"
    return shell_words.command("why", [names.name, *words])
