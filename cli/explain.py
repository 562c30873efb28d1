"""The explanation of a key's limits as a screen of text, and what a candidate would have done as a sentence.

Renders the answer of `GET /v1/limits/{key}?explain=1`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from cli.names import quote_topic
from common import figures
from common.figures import pluralise
from limiter.rules.actions import ACTION_RECORDS
from limiter.rules.match import SENDER_KEYS
from limiter.rules.rule_set import UNRULED
from limiter.units import format_size

CLIENTS_SHOWN: Final = 3  # clients; of the eight that the gateway names
JSONObject = dict[str, Any]


def explain_key(body: JSONObject) -> Iterator[str]:
    """A key's answer with its explanation, line by line."""
    protocol = body.get("protocol")
    yield f"{protocol or ''} {quote_topic(protocol, str(body.get('topic') or ''))}".strip()
    for level in body.get("explanation") or []:
        holds = level.get("holds")
        yield ""
        yield f"{level.get('operation')} per {level.get('per')}: {describe_hold(holds) if holds else nothing(level)}"
        if holds:
            yield from details(holds, protocol)
        for lost in level.get("lost") or []:
            yield f"  not   {lost['rule']}{at(lost)}, {lost['origin']}, {limit(lost['limit'])}: {lost['reason']}"
        for missed in level.get("missed") or []:
            yield f"  not   {missed['rule']}{at(missed)}: {missed['reason']}"
        if level.get("more"):
            yield f"  and {level['more']} more"


def explain_levels(body: JSONObject) -> Iterator[str]:
    """The limits of a client, user, queue and so on, line by line, as a topic's are shown."""
    key = str(body.get("key") or "")
    yield key
    for level in body.get("levels") or []:
        yield ""
        yield f"{level.get('operation')} per {level.get('per')}: {describe_hold(level)}"
        yield from details(level, "rocketmq" if key.startswith("rocketmq ") else "amqp")


def describe_hold(level: JSONObject) -> str:
    rule = "no rule" if level.get("rule") == UNRULED.name else f"{level.get('rule')}{at(level)}"
    unenforced = "" if level.get("mode", "enforce") == "enforce" else f", not enforced (mode {level['mode']}),"
    return f"{limit(level.get('limit') or {})}{unenforced}  of {rule}"


def nothing(level: JSONObject) -> str:
    return f"nothing holds ({pluralise(int(level.get('rules') or 0), 'rule')})"


def at(item: JSONObject) -> str:
    return f" ({item['place']})" if item.get("place") else ""


def limit(shown: JSONObject) -> str:
    """A limit in words: `500/s (burst 1000), 5MiB/s (burst 10MiB)`, `500/s` where there is no burst."""
    parts = []
    for name in ("messages", "bytes"):
        if shown.get(name) is not None:
            burst = shown.get(f"{name}_burst")
            parts.append(shown[name] if burst is None else f"{shown[name]} (burst {format_size(burst) if name == 'bytes' else burst})")
    if shown.get("warm_up") is not None:
        parts.append(f"warm after {shown['warm_up']}")
    parts += [f"{shown[name]} {name}" for name in ("concurrent",) if shown.get(name) is not None]
    return ", ".join(parts) or "unlimited"


def details(level: JSONObject, protocol: object = None) -> Iterator[str]:
    """The limit that holds: its subject and origin, its action, its use, and the candidate tried beside it."""
    origin = str(level.get("origin"))
    if level.get("by") or level.get("at"):
        origin += f", changed live by {level.get('by') or 'somebody'} {level.get('at') or ''}".rstrip()
    if level.get("reason"):
        origin += f": {level['reason']}"
    if level.get("expires"):
        origin += f", until {level['expires']}"
    per, thing = level.get("per"), level.get("thing")
    if per == "topic" and thing and protocol is not None:
        thing = quote_topic(protocol, str(thing))
    yield f"  for   {thing or ('all of them together' if per == 'rule' else f'each {per} apart')}"
    yield f"  from  {origin}"
    yield f"  how   {', '.join(ways(level))}"
    usage = level.get("usage")
    unused = f"depends on the {per}: add --{per}" if per in SENDER_KEYS and not thing else "not used yet"
    yield f"  now   {describe_use(usage) if usage else unused}"
    if level.get("candidate") is not None:
        yield f"  tried {describe_trial_beside(level)}"


def ways(level: JSONObject) -> Iterator[str]:
    yield f"mode {level.get('mode')}"
    yield str(level.get("algorithm"))
    open_for = level.get("open_for")
    yield "no breaker" if open_for == "0s" else f"breaker {open_for}"
    action = level.get("action")
    record = ACTION_RECORDS.get(str(action), ACTION_RECORDS["reject"])
    yield f"action {action}" + (f" up to {level.get('max_delay')}" if "max_delay" in record.settings else "")
    if "fallback" in record.settings:
        yield f"reply {level.get('reply')}, fallback {level.get('fallback')}"
    if level.get("weight", 1) != 1:
        yield f"weight {level['weight']:g}"
    if level.get("protected"):
        yield "protected"
    if level.get("copies", "count") != "count":
        yield f"copies {level['copies']}d"
    if level.get("cost"):
        yield cost_text(level["cost"])
    if level.get("max_message_size"):
        yield f"messages up to {level['max_message_size']}"


def cost_text(cost: JSONObject) -> str:
    """What a rule counts for one: `a message costs 1 per 4KiB, a declare costs 10`."""
    parts = [f"a message costs 1 per {cost['step']}"] if "step" in cost else []
    parts += [f"a {name} costs {number}" for name, number in cost.items() if name != "step"]
    return ", ".join(parts)


def describe_use(usage: JSONObject) -> str:
    """The state of a limit in use, on one line."""
    parts = []
    if usage.get("received_per_second") is not None:
        received, refused = (round(usage.get(f"{what}_per_second") or 0, 1) for what in ("received", "refused"))
        parts.append(f"{received:g}/s received, {refused:g}/s refused")
    parts.append(f"{round(usage.get('fill', 0) * 100)} % full, breaker {usage.get('breaker')}")
    if usage.get("cap_now") is not None:
        parts.append(f"tightened to {limit(usage['cap_now'])} ({usage.get('cap_reason')})")
    if usage.get("rate_now") is not None:
        parts.append(f"{limit(usage['rate_now'])} by the backlog")
    if usage.get("in_flight") is not None:
        parts.append(f"{in_flight(usage)} in flight")
    passed = usage.get("admitted", 0) + usage.get("shadow_refused", 0)
    parts.append(f"{passed:,} passed, {usage.get('refused', 0):,} refused, {usage.get('held', 0):,} had to wait")
    if usage.get("would_refuse"):
        parts.append(f"{usage['would_refuse']:,} of them would have been refused (shadow)")
    if usage.get("last_refused"):
        parts.append(f"last over it {moment(usage['last_refused'])}")
    return "; ".join(parts)


def in_flight(usage: JSONObject) -> str | None:
    """`12 of 64`: requests in flight, and the bound on them now. None where the limit does not count them."""
    return None if usage.get("in_flight") is None else f"{usage['in_flight']} of {usage.get('concurrent_now')}"


def what_holds_over(level: JSONObject) -> str:
    """What changes a rule's limit for this key: `the live change`, `the published quota`."""
    return "the published quota" if str(level.get("origin")).startswith("quota") else "the live change"


def describe_trial_beside(level: JSONObject) -> str | None:
    """The candidate of a level, and what it would have done there; None without one. A live change or a quota may hold over it, too."""
    candidate, here = level.get("candidate"), level.get("candidate_here")
    usage = (level.get("usage") or {}).get("candidate")
    if candidate is None or here is None:
        return describe_trial(candidate, usage)
    if here == level.get("limit"):
        return f"{limit(candidate)}: would change nothing here, {what_holds_over(level)} holds over it"
    return f"{limit(candidate)}; here, as {what_holds_over(level)} holds over it, {describe_trial(here, usage)}"


def describe_trial(candidate: JSONObject | None, usage: JSONObject | None) -> str | None:
    """`300/s (burst 300): would have refused 412 of 10,300 since 12:01, of 10.0.0.7, 10.0.0.9`; None without a candidate."""
    if candidate is None:
        return None
    text = limit(candidate)
    if usage is None or not usage.get("since"):
        return f"{text}: nothing judged yet"
    refused = int(usage.get("would_refuse") or 0)
    total = refused + int(usage.get("would_admit") or 0)
    text += f": would have refused {refused:,} of {total:,} since {moment(usage['since'])}"
    clients = [str(each.get("client")) for each in usage.get("clients") or []]
    if clients:
        more = len(clients) - CLIENTS_SHOWN
        text += f", of {', '.join(clients[:CLIENTS_SHOWN])}" + (f" and {more} more" if more > 0 else "")
    return text


def ago(text: str) -> str:
    """The time since an RFC 3339 moment: `12min 8s`."""
    try:
        return figures.duration(max(0.0, round((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())))
    except ValueError:
        return "?"


def moment(text: str) -> str:
    """A time of today as `12:01:03`, any other with its date; UTC, as the gateway sends it."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return when.strftime("%H:%M:%S" if when.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S")
