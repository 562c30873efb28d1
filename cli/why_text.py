"""The findings of `sluice why` as a page of text that reads well at 80 columns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from cli.account_text import account_text, fate
from cli.client_advice import ClientAdvice
from cli.explain import JSONObject, ago, cost_text, describe_trial_beside, limit, moment
from cli.names import words_of_path
from cli.tables import cell_width, fold
from cli.why_facts import PATTERN, RAISE, AbsentSender, Findings, Limited, LimitedClient, situations, to_do
from common import figures
from common.shell_words import command, quote_word
from limiter.operations import CONSUME, OPERATION_RECORDS, PRODUCE, Operation
from limiter.rules.actions import ACTION_RECORDS, PATIENT
from limiter.rules.rule_set import UNRULED
from limiter.rules.rule_words import REFUSE

MAX_WIDTH: Final = 100  # columns; longer lines are hard to read
INDENT: Final = 12  # columns; of what stands beside a heading
LATELY: Final = "in the last 10 s"  # that every rate is a mean over: it goes on for so long when a flood has ended
MOST: Final = 0.5  # of what is refused; the part above which one client makes most of it
LIFETIME: Final = "1h"  # of the change that is suggested: long enough to look for the cause
WRITTEN: Final = ("vhost", "exchange")  # levels whose `thing` is percent-encoded already
NEVER_MS: Final = 3_600_000.0  # ms; a longer wait is none: the limit is 0
HEADLINES: Final = {
    "limited_now": "limited now",
    "waiting_now": "waiting now",
    "limited_before": "not limited now",
    "not_enforced": "over a limit that is not enforced: nothing is refused, and nothing waits",
    "within": "within its limit, nothing was refused, and nothing had to wait",
    "unseen": "no message of it has come yet",
    "unlimited": "no limit holds for it",
    "capped": "no limit of its own holds for it; a listener has a cap",
}


def text_width() -> int:
    """Columns of the terminal, but no more than read well."""
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)


def write_page(findings: Findings, libraries: list[ClientAdvice]) -> Iterator[str]:
    """The page, line by line."""
    width = text_width()
    yield from fold(headline(findings).split(" "), width)
    one = findings.worst
    shown = [one] if one is not None else findings.levels
    for each in shown:
        yield ""
        yield from level_lines(findings, each, width)
    others = [each for each in findings.levels if each not in shown]
    if others:
        yield from beside("also", "; ".join(in_short(each) for each in others), width)
    if findings.caps:
        yield from beside("caps", [f"if it comes by {name}: {in_short(cap)}" for name, cap in findings.caps.items()], width)
    if findings.clients and one is not None:
        yield from beside("clients", [client_text(client) for client in findings.clients], width)
    for absent in findings.absent:
        yield from beside(absent.kind, absent_text(findings, absent), width)
    if one is None and not findings.traffic:
        yield from beside("seen", unseen(findings), width)
    bites = situations(findings)
    if libraries and (bites or not findings.levels):
        yield ""
        yield "What the application sees" if one is not None else "What the application would see"
    for advice in libraries:
        texts = [advice.shows[bite] for bite in bites if bite in advice.shows]
        change = to_do(advice, bites)
        yield from beside(advice.name, [*texts, *([f"To do: {change}."] if change else [])], width, indent=4, above=True)
    yield from what_to_do(findings, libraries, width)


def beside(name: str, text: str | list[str], width: int, *, indent: int = INDENT, above: bool = False) -> Iterator[str]:
    """`text` (several: one below the other) beside its name, or below it, folded to `width`."""
    texts = [text] if isinstance(text, str) else text
    if above:
        yield f"  {name}"
    for number, each in enumerate(texts):
        head = f"  {name}".ljust(indent) if not number and not above else " " * indent
        yield from fold(each.split(" "), width, indent=" " * indent, first=head)


def headline(findings: Findings) -> str:
    one = findings.worst
    waits = one is not None and findings.account(one).get("state") == "waiting"
    state = "capped" if findings.state == "unlimited" and findings.caps else findings.state
    text = f"{' '.join(findings.words)}: {HEADLINES['waiting_now' if waits and state == 'limited_now' else state]}"
    if one is None or not one.enforced:
        return text
    by = "" if one.level.get("per") == "topic" else f"by the limit {whose(one.level)}"
    if findings.state == "limited_before":
        return f"{text}; last {by + ', ' if by else ''}{moment(one.last_over)} UTC ({ago(one.last_over)} ago)"
    text += f" {by}" if by else ""
    since = str((one.event or {}).get("since") or "")
    return f"{text}, since {moment(since)} UTC ({ago(since)})" if since else text


def level_lines(findings: Findings, one: Limited, width: int) -> Iterator[str]:
    level = one.level
    yield from beside("limit", f"{limit(level.get('limit') or {})}, {subject_text(level)}{'' if one.enforced else ', not enforced'}", width)
    if level.get("max_message_size"):
        yield from beside("size", f"up to {level['max_message_size']}; a larger message is refused, whatever the action", width)
    if level.get("copies", "count") != "count":
        yield from beside("copies", f"{level['copies']}d: what publishes name in CC and BCC headers", width)
    if level.get("cost"):
        yield from beside("cost", f"{cost_text(level['cost'])}; all of it together is under the limit", width)
    yield from beside("set by", set_by(findings, level), width)
    offered, over = findings.demand(one)
    if offered or one.over_now:
        passed = max(0.0, offered - over)
        if is_held(level):
            text = f"{figures.rate(passed)} {operation_of(level).passes}"
        else:
            what = "waits" if one.enforced and level.get("action") in PATIENT else "is over the limit"
            text = f"{figures.rate(offered)}: {figures.rate(passed)} passes, {figures.rate(over)} {what}{span(one)}"
        yield from beside("demand", text, width)
    waits = one.enforced and findings.account(one).get("state") == "waiting"
    if waits:
        yield from beside("now", account_text(findings.item(one)), width)
        end = fate(findings.item(one))
        if end is not None:
            yield from beside("restart", end, width)
    if one.usage:
        usage = one.usage
        total = f"{usage['admitted']:,} passed, {usage['refused']:,} refused, {usage['held']:,} had to wait"
        if not one.enforced:
            over = usage.get("would_refuse") or 0
            total = f"{usage['admitted'] + usage['shadow_refused']:,} passed, {over:,} of them would have been refused"
        yield from beside("in all", total, width)
        if not waits:
            yield from beside("wait", wait_text(level, usage) if one.enforced else "none: every message passes", width)
    yield from beside("action", action_text(level, str(findings.body.get("protocol"))), width)
    tried = describe_trial_beside(level)
    if tried is not None:
        yield from beside("tried", tried, width)


def subject_text(level: JSONObject) -> str:
    """Whose limit it is: `for this topic`, `for the user shop`, `for each client apart`."""
    return operation_of(level).whose + whose(level)


def operation_of(level: JSONObject) -> Operation:
    return OPERATION_RECORDS.get(str(level.get("operation")), OPERATION_RECORDS[PRODUCE])


def is_held(level: JSONObject) -> bool:
    """Whether what is over it only waits."""
    return operation_of(level).held


def whose(level: JSONObject) -> str:
    per, thing = str(level.get("per")), str(level.get("thing") or "")
    if per == "topic":
        return "for this topic" if not thing.endswith(".#") else f"for all topics of {thing} together"
    if per == "rule":
        return "for all topics of the rule together"
    return f"for the {per} {thing}" if thing else f"for each {per} apart"


def span(one: Limited) -> str:
    """The time that a demand is of, where it is told by the bucket's last line of the log; "": as all rates are of."""
    if one.usage.get("received_per_second") is not None or not (one.event or {}).get("ts"):
        return ""
    event = one.event or {}
    return f", in the {figures.duration(float(event.get('seconds') or 1))} to {moment(str(event['ts']))} UTC"


def set_by(findings: Findings, level: JSONObject) -> list[str]:
    """Where the limit comes from, and who is answerable for it."""
    place = f" ({level['place']})" if level.get("place") else ""
    rule = f"rule {level.get('rule')}{place}" if level.get("rule") != UNRULED.name else "no rule"
    origin = str(level.get("origin"))
    own = f", which says {limit(level['rule_limit'])}" if level.get("rule_limit") else ""
    if origin == "override" or level.get("by"):
        lines = [f"{level.get('by') or 'somebody'} at {moment(str(level.get('at') or ''))} UTC, a live change over {rule}{own}"]
        if level.get("reason"):
            lines.append(f"reason: {level['reason']}")
        lines.append(f"until {moment(str(level['expires']))} UTC" if level.get("expires") else "until it is taken back")
        return lines
    if origin.startswith("quota"):
        quotas = findings.quotas or {}
        night = f" of {quotas['date']}" if quotas.get("date") else ""
        lines = [f"the published quota{night}, over {rule}{own}"]
        if quotas:
            lines.append(f"published by {quotas.get('by') or 'somebody'} at {moment(str(quotas.get('at') or ''))} UTC")
        if quotas.get("reason"):
            lines.append(f"reason: {quotas['reason']}")
        if origin == "quota+hour":
            lines.append("raised for now by the demand of the last hour or of the last seconds")
        return [*lines, *(f"held down by the ceiling of {roof}" for roof in level.get("ceilings") or ())]
    return [f"{rule}, which names this {level.get('per')}" if origin == "file" else f"{rule}, as for all that it matches"]


def wait_text(level: JSONObject, usage: JSONObject) -> str:
    wait = float(usage.get("wait_ms") or 0)
    if wait >= NEVER_MS:
        return "without end: the limit is 0"
    if not wait:
        return "none: a message sent now passes"
    breaker = f"; the breaker is open, {level.get('open_for')} at a time" if usage.get("breaker") == "open" else ""
    return f"{figures.duration(wait / 1e3)} until the next message passes{breaker}"


def action_text(level: JSONObject, protocol: str) -> str:
    action = str(level.get("action"))
    if level.get("mode") != "enforce":
        counted = "what is over it is counted, and passes" if level.get("mode") == "shadow" else "nothing is judged"
        return f"none: mode {level.get('mode')}; {counted}"
    if is_held(level):
        closes = "; basic.get waits for a second, then its channel is closed (506)" if action == "close" else ""
        return operation_of(level).waits + closes
    record = ACTION_RECORDS.get(action)
    if record is None:  # of a gateway that is newer
        return action
    if action != "reject":
        return f"{action}: {record.does_for.get(protocol, record.does).format(max_delay=level.get('max_delay'))}"
    if protocol != "amqp":
        return f"reject: refused with code {'2' if level.get('reply') == 'system_busy' else '215'} and the wait"
    fallback = str(level.get("fallback"))
    instead = ACTION_RECORDS[fallback].instead if fallback in ACTION_RECORDS else ""
    return f"reject: nacked; where a channel has no confirms, {instead or fallback}"


def in_short(one: Limited) -> str:
    level = one.level
    if not one.enforced:
        return (
            f"{limit(level.get('limit') or {})} {subject_text(level)} of rule {level.get('rule')}: not enforced (mode {level.get('mode')})"
        )
    state = "over it now" if one.over_now else ("was over it" if one.last_over else "within it")
    return f"{limit(level.get('limit') or {})} {subject_text(level)} of rule {level.get('rule')}: {state}"


def client_text(client: LimitedClient) -> str:
    """`10.0.0.7 (checkout-7, user shop, pika): 170/s refused in the last 10 s`."""
    known = [*sorted(client.names)[:3], *(f"user {user}" for user in sorted(client.users)[:3]), *sorted(client.libraries)]
    if client.refused_per_second or client.refused:
        many = (
            f"{figures.rate(client.refused_per_second)} refused {LATELY}"
            if client.refused_per_second
            else f"{client.refused:,} refused in all"
        )
    elif client.delayed_per_second or client.delayed:
        many = (
            f"{figures.rate(client.delayed_per_second)} waits {LATELY}" if client.delayed_per_second else f"{client.delayed:,} had to wait"
        )
        many += ", of all its topics"
    else:
        many = ""
    return f"{client.address}{' (' + ', '.join(known) + ')' if known else ''}{': ' + many if many else ''}"


def absent_text(findings: Findings, absent: AbsentSender) -> str:
    others = f"; known are: {', '.join(absent.others)}" if absent.others else f"; no other {absent.kind} is connected either"
    nothing = f"nothing of {absent.name} is known: no connection of it is open, and no limit refused or held anything of it"
    return f"{nothing} since the start of this gateway{started_ago(findings)}, or long ago{others}"


def started_ago(findings: Findings) -> str:
    uptime = findings.status.get("uptime_seconds")
    return f", which was {figures.duration(round(float(uptime)))} ago" if isinstance(uptime, int | float) else ""


def unseen(findings: Findings) -> str:
    text = f"not since the start of this gateway{started_ago(findings)}, or long ago"
    if findings.status.get("taken_over_at"):
        text += f" (it took over from another at {moment(str(findings.status['taken_over_at']))} UTC, whose counters ended with it)"
    if any(PATTERN.search(word) for word in findings.words[1:]):
        text += "; `why` takes one topic's own name, not a pattern"
    if findings.near:
        return f"{text}; seen are: {', '.join(findings.near)}"
    return f"{text}; check the spelling: `sluice topics -q WORD` shows what comes"


def commands_of(findings: Findings) -> list[str]:
    """Commands that raise the limit in the way, or show more; for somebody with an operator's token."""
    one = findings.worst
    found = []
    if one is not None and not one.enforced:
        found.append(enforcing_command(findings, one.level))
    elif one is not None:
        level = one.level
        offered, _ = findings.demand(one)
        limits = level.get("limit") or {}
        now = float(limits.get("messages_per_second") or 0)
        wanted = nice(max(offered * RAISE, now * RAISE, 1.0))
        options = f"--messages {wanted}/s" if limits.get("messages") or not limits.get("bytes") else f"--bytes {twice(limits)}"
        if level.get("per") == "topic" and not is_held(level):
            found.append(command("limits set", key_words(findings, level), f"{options} --for {LIFETIME} --reason '...'"))
        elif (
            level.get("origin") == "override" and level.get("thing") and level.get("per") != "topic"
        ):  # which holds over the rule, whatever that says
            found.append(level_command("limits set", level, f"{options} --for {LIFETIME} --reason '...'"))
            found.append(level_command("limits unset", level, "--reason '...'"))
        elif level.get("per") == "topic":
            words, operation = consumed_words(findings, level)
            found.append(command("limits set", words, f"{operation}{options} --for {LIFETIME} --reason '...'"))
        elif level.get("rule") != UNRULED.name:
            found.append(f"sluice rules set {quote_word(str(level.get('rule')))} {options} --for {LIFETIME} --reason '...'")
    contained = containment(findings)
    if contained is not None:
        found.append(contained[1])
    return [*found, command("limits get", findings.words)]


def enforcing_command(findings: Findings, level: JSONObject) -> str:
    """The command that enforces a limit which is only counted, as it is: of the live change where there is one, else of its rule."""
    shown = level.get("limit") or {}
    options = [f"--{name} {shown[name]}" for name in ("messages", "bytes", "concurrent") if shown.get(name)]
    if level.get("origin") != "override":  # the rule's own limit stays; a topic's quota is none of it
        return f"sluice rules set {quote_word(str(level.get('rule')))} --mode enforce --reason '...'"
    if level.get("per") != "topic":
        return level_command("limits set", level, f"{' '.join(options)} --reason '...'")
    key, operation = consumed_words(findings, level) if is_held(level) else (key_words(findings, level), "")
    return command("limits set", key, f"{operation}{' '.join(options)} --reason '...'")


def containment(findings: Findings) -> tuple[LimitedClient, str] | None:
    """The client that makes most of what is refused or held of the topic, and the command that holds it back alone; None where none does.

    It is left half of the limit in the way, so that the others have the other half. A limit of one client holds it back already.
    """
    one = findings.worst
    if one is None or not one.enforced or one.level.get("per") in {"client", "connection"} or is_held(one.level):
        return None
    limits = one.level.get("limit") or {}
    messages, size = (float(limits.get(name) or 0) / 2 for name in ("messages_per_second", "bytes_per_second"))
    worst = max(findings.clients, key=_over, default=None)
    if worst is None or _over(worst) <= sum(map(_over, findings.clients)) * MOST or max(messages, size) < 1:
        return None
    options = " ".join([*([f"--messages {int(messages)}/s"] if messages >= 1 else []), *([f"--bytes {int(size)}B/s"] if size >= 1 else [])])
    return worst, f"sluice limits set client {worst.address} {options} --for {LIFETIME} --reason '...'"


def _over(client: LimitedClient) -> float:
    """Messages per second: refused or held."""
    return client.refused_per_second + client.delayed_per_second


def level_command(verb: str, level: JSONObject, options: str) -> str:
    """The command on the live change for a client, user, queue ..."""
    words, operation = words_of_path(live_change_path(level))
    return command(verb, words, " ".join(filter(None, [operation, options])))


def live_change_path(level: JSONObject) -> str:
    """The path of a live change for a client, user, queue ..., behind `limits/`: `client/10.0.0.7`."""
    per, thing = str(level.get("per")), str(level.get("thing"))
    operation = f"{operation_of(level).name}/" if is_held(level) else ""
    return f"{operation}{per}/{thing if per in WRITTEN else quote(thing, safe='')}"


def key_words(findings: Findings, level: JSONObject) -> tuple[str, ...]:
    """The key by which the limit is changed: of a group of keys, its name."""
    thing = str(level.get("thing") or "")
    group = thing.endswith(".#") and not findings.words[-1].endswith(".#")
    return (*findings.words[:-1], thing.rpartition("/")[2]) if group else findings.words


def consumed_words(findings: Findings, level: JSONObject) -> tuple[tuple[str, ...], str]:
    """The key by which the limit on its deliveries is changed, or on what is given back of them, and the option that names which: an AMQP
    topic's is its queue, which the default exchange is named after."""
    protocol, vhost, *_, name = findings.words
    operation = operation_of(level).name
    option = "" if protocol == "amqp" and operation == CONSUME else f"--operation {operation} "
    return (("queue", vhost, name) if protocol == "amqp" else findings.words), option


def twice(limits: JSONObject) -> str:
    return f"{nice(float(limits.get('bytes_per_second') or 512) * 2)}B/s"


def nice(number: float) -> int:
    """The number rounded up to two digits: 234 is 240."""
    step = 10 ** max(0, len(str(int(number))) - 2)
    return int(-(-number // step) * step)


def what_to_do(findings: Findings, libraries: list[ClientAdvice], width: int) -> Iterator[str]:
    one = findings.worst
    yield ""
    if one is None:
        text, look = "Every rule and why it holds or not:", command("limits get", findings.words)
        yield from [f"{text} {look}"] if cell_width(f"{text} {look}") <= width else [text, f"  {look}"]
        return
    yield "What to do"
    level = one.level
    if not one.enforced:
        *changes, look = commands_of(findings)
        yield from beside(
            "-", f"Nothing, for the application: all of it passes (mode {level.get('mode')}). To enforce the limit:", width, indent=4
        )
        yield from (f"      {change}" for change in changes)
        yield from beside("-", "See every rule, and why it holds or not:", width, indent=4)
        yield f"      {look}"
        return
    spools = level.get("action") == "spool"
    if spools:
        yield from beside(
            "-", "Nothing is refused: what is over the limit waits, and passes later. See how much and how long:", width, indent=4
        )
        yield f"      {command('spool show', findings.words)}"
    elif not is_held(level):
        less = too_much(level, *findings.demand(one))
        share = f", {figures.percent(less)} less than now" if less > 0 else ""
        if level.get("max_message_size"):
            yield from beside("-", f"Send no message larger than {level['max_message_size']}.", width, indent=4)
        if level.get("copies") == REFUSE:
            yield from beside("-", "Name no copies (CC, BCC); publish to each key by itself.", width, indent=4)
        if any((level.get("limit") or {}).values()):
            yield from beside("-", f"Slow down: send at most {limit_rate(level)}{share}.", width, indent=4)
    else:
        yield from beside("-", operation_of(level).remedy, width, indent=4)
    if findings.body.get("protocol") == "amqp" and not is_held(level) and any(c.confirms is False for c in findings.clients):
        why = (
            "nobody learns of those that wait here when the gateway crashes"
            if spools
            else "a refused message cannot be told from a slow one"
        )
        yield from beside("-", f"Use publisher confirms: without them {why}.", width, indent=4)
    if not libraries:
        yield from beside("-", "See what your client library shows, and what to change there: add --all-libraries.", width, indent=4)
    *changes, look = commands_of(findings)
    contained = containment(findings)
    if contained is not None:
        changes.remove(contained[1])
        text = f"Or hold {contained[0].address} back, which makes most of what is over the limit, so that the others pass:"
    if changes:
        yield from beside("-", "Ask for more; whoever runs the gateway types:", width, indent=4)
        yield from (f"      {change}" for change in changes)
    if contained is not None:
        yield from beside("-", text, width, indent=4)
        yield f"      {contained[1]}"
    yield from beside("-", "See every rule, and why it holds or not:", width, indent=4)
    yield f"      {look}"


def too_much(level: JSONObject, offered: float, over: float) -> float:
    """The share of what is offered that is too much. A breaker or another limit refuses more than that."""
    most = (level.get("limit") or {}).get("messages_per_second")
    if not offered or not over:
        return 0.0
    return over / offered if most is None else 1 - float(most) / offered


def limit_rate(level: JSONObject) -> str:
    limits = level.get("limit") or {}
    return " and ".join(str(limits[name]) for name in ("messages", "bytes") if limits.get(name)) or limit(limits)
