"""`/v1/limits`: the limits of each key, and the live change of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.bodies import LimitBody, decode, override
from admin.http.paging import CURSOR, DESCRIBED_AT_ONCE, LIMIT, QUERY, Selection, one_long_list
from admin.http.preconditions import etag, require_match
from admin.http.problems import Fault, invalid, not_found, pattern
from admin.http.routing import SET_PARAMETERS, WRITE_PARAMETERS, Answer, Parameter, Route
from admin.http.side_thread import run_in_thread
from admin.http.slices import yield_to_loop
from admin.http.spreadsheet import FORMAT, LIMITS
from admin.pattern_refusal import instead_of_pattern
from admin.store.state import StoredOverride, key_target
from admin.views.limit_list import SORTS, describe, find_entries, rates_of, sort_key
from admin.views.limit_views import (
    Explained,
    KeyLimit,
    Level,
    LimitInUse,
    LimitPage,
    level_of,
    remarks_on_limits,
    shorten_explanation,
    usage_of,
)
from admin.views.views import Preview
from common.records import dataclass
from limiter.operations import CONSUME, OF_TOPICS, OPERATIONS, PRODUCE
from limiter.protocols import PROTOCOL_NAMES, RETRY_PREFIX, ROCKETMQ, spoken_behind
from limiter.rules.errors import RuleError
from limiter.rules.explanation import explain
from limiter.rules.match import PROTOCOLS, SENDER_KEYS, Match
from limiter.rules.rule_set import UNRULED, Effective, RuleSet
from limiter.rules.sender import ANYBODY, Sender
from limiter.rules.subject import Subject
from limiter.topics import TopicName, topic_of_parts

MAX_NAME_BYTES: Final = 255  # bytes; one part of a key; AMQP's short strings, and RocketMQ's longest topic (%RETRY% and a group)
MAX_RULES_ON_LOOP: Final = 200  # rules explained on the loop's thread, in some 5 ms; more are explained on another


def key_of_request(context: Context) -> TopicName:
    """The key that the path names; raises ProblemError 422 where no key can have that name."""
    protocol = unquote(context.request.head.path.split("/")[3])  # of /v1/limits/rocketmq/{topic}
    return topic_of_parts(protocol, list(bounded_names(context).values()))


def bounded_names(context: Context) -> Mapping[str, bytes]:
    """The parts of a key in the path; raises ProblemError 422 where one is too long."""
    names = context.request.path
    faults = [
        Fault(f"{{{name}}}", f"{len(value)} bytes; no broker takes more than {MAX_NAME_BYTES}")
        for name, value in names.items()
        if len(value) > MAX_NAME_BYTES
    ]
    if faults:
        raise invalid("no key can have this name", faults)
    return names


@dataclass(frozen=True, slots=True)
class AskedSender:
    """The sender asked about. `operation` None: all that the key is for."""

    sender: Sender = ANYBODY
    group: bytes | None = None
    operation: str | None = None

    def subject(self, name: TopicName, operation: str) -> Subject:
        return Subject(name, name.text(), self.sender, self.group, operation)


OF_ANYBODY: Final = AskedSender()


def sender_of_request(context: Context, protocol: str) -> AskedSender:
    """The sender that the query names; raises ProblemError 422 for a listener that there is none of, a client that is no address, and what
    the key's protocol does not have.
    """
    query = context.request.query
    faults = []
    listener = query.get("listener")
    known = [each.name for each in context.gateway.listeners()]
    if listener is not None and known and listener not in known:
        faults.append(Fault("?listener", f"there is no listener {listener!r}; known: {', '.join(known)}"))
    client = query.get("client")
    if client is not None and not is_address(client):
        faults.append(Fault("?client", f"{client!r} is no address; give one without its port, e.g. 10.0.0.7"))
    try:
        Match(protocol=protocol, **{name: query.get(name) for name in (*SENDER_KEYS, "operation") if name != "client"})
    except RuleError as error:
        faults.append(Fault(f"?{error.field.removeprefix('match.')}", error.message))
    if faults:
        raise invalid("there is no such sender", faults)
    group = query.get("group")
    sender = Sender(**{name: query.get(name) for name in Sender._fields})
    return AskedSender(sender, None if group is None else group.encode(errors="surrogateescape"), query.get("operation"))


def is_address(text: str) -> bool:
    """Whether it is an IPv4 or IPv6 address; a scope (`%eth0`) may follow."""
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def holding(context: Context, name: TopicName, asked: AskedSender = OF_ANYBODY) -> list[tuple[str, Effective]]:
    """The limits of a key, with their operation."""
    rules = context.store.rules()
    return [
        (operation, effective) for operation in operations_of(name, asked) for effective in rules.matched(asked.subject(name, operation))
    ]


def by_only_listener(context: Context, name: TopicName, asked: AskedSender = OF_ANYBODY) -> AskedSender:
    """`asked`; where it names no listener and one alone speaks the key's protocol, by that one, as all messages of the key come."""
    speaking = [each.name for each in context.gateway.listeners() if each.protocol == name.protocol]
    if asked.sender.listener is not None or len(speaking) != 1:
        return asked
    return replace(asked, sender=asked.sender._replace(listener=speaking[0]))


def operations_of(name: TopicName, asked: AskedSender) -> tuple[str, ...]:
    """RocketMQ's topics are consumed, and those of retries given back to; of AMQP's keys those that are a queue's name: the routing keys of
    the default exchange."""
    if asked.operation is not None:
        return (asked.operation,)
    if name.exchange:
        return (PRODUCE,)
    if name.protocol == ROCKETMQ.name and not name.topic.startswith(RETRY_PREFIX.encode()):
        return (PRODUCE, CONSUME)
    return OF_TOPICS


def configured(context: Context, name: TopicName, found: list[tuple[str, Effective]] | None = None) -> tuple[Any, ...]:
    """The parts of a key that its ETag covers; `found` are its limits for anybody, where they are known."""
    limits = holding(context, name, by_only_listener(context, name)) if found is None else found
    levels = [level_of(effective, operation=operation) for operation, effective in limits]
    return (context.store.override(key_target(name)), levels)


async def key_answer(context: Context, name: TopicName, asked: AskedSender = OF_ANYBODY, *, explaining: bool = False) -> Answer:
    """The limits as they are now, with the ETag of just that, whatever is changed while the answer is made."""
    rules, revision, changed = context.store.rules(), context.store.revision, context.store.override(key_target(name))
    of_anybody, asked = by_only_listener(context, name), by_only_listener(context, name, asked)
    found = holding(context, name, asked)
    tag = etag(configured(context, name, found if asked == of_anybody else None))
    await yield_to_loop()
    remarks = remarks_on(context, name, found)
    rates = await rates_of(context, {(name.protocol, effective.thing, operation) for operation, effective in found})
    things = (effective.thing for operation, effective in found if effective.per == "topic" and operation == "produce")
    topic = next(things, name.text())  # or the group it names

    def level(operation: str, effective: Effective) -> Level:
        one_bucket = bool(effective.thing) or effective.per == "rule"  # else the sender was not given, and each has its own
        state = context.gateway.judge.state_of(effective.identity, context.request.now) if one_bucket else None
        if state is None or state.operation != operation:
            return level_of(effective, operation=operation)
        now = rates.get((name.protocol, effective.thing, operation)) if effective.per == "topic" else None
        return level_of(effective, usage_of(state, now, context.seconds_at), operation)

    await yield_to_loop()
    view = KeyLimit(
        protocol=name.protocol,
        topic=topic,
        path=f"/v1/{key_target(name)}",
        revision=revision,
        override=changed,
        levels=[level(operation, effective) for operation, effective in found],
        explanation=await explanation_of(rules, name, asked, level) if explaining else None,
        remarks=remarks,
    )
    return Answer(view, etag=tag)


def remarks_on(context: Context, name: TopicName, found: list[tuple[str, Effective]]) -> list[str]:
    """What of its limits is not enforced; and why a live change may have no effect: no listener for it, or no rule."""
    change = context.store.override(key_target(name))
    remarks = remarks_on_limits(change, (effective for _, effective in found))
    own = [effective for _, effective in found if effective.per == "topic"]
    return remarks if change is None else remarks + remarks_on_change(context, name.protocol, own)


def remarks_on_change(context: Context, protocol: str | None, own: Iterable[Effective]) -> list[str]:
    """Why a live change of a key may have no effect, or another than was meant. `own`: the limits at the key's own level."""
    remarks = []
    if protocol is not None and protocol not in {spoken_behind(each.protocol) for each in context.gateway.listeners()}:
        remarks.append(f"no listener speaks {protocol}: no message of this key comes through this gateway")
    if any(effective.rule.name == UNRULED.name for effective in own):
        remarks.append(f"no rule is for this key (rule: {UNRULED.name}): the change alone limits it, until it is taken back")
    return remarks


async def explanation_of(rules: RuleSet, name: TopicName, asked: AskedSender, level: Callable[[str, Effective], Level]) -> list[Explained]:
    """Each level of a key. Thousands of rules are walked on another thread."""
    found: list[Explained] = []
    for operation in operations_of(name, asked):
        subject = asked.subject(name, operation)
        if len(rules.rules) <= MAX_RULES_ON_LOOP:
            levels = explain(rules, subject)
        else:
            levels = await run_in_thread(explain, rules, subject)
        found += [
            shorten_explanation(each, operation, None if each.effective is None else level(operation, each.effective)) for each in levels
        ]
    return found


async def get(context: Context) -> Answer:
    name = key_of_request(context)
    return await key_answer(context, name, sender_of_request(context, name.protocol), explaining=context.request.flag("explain"))


async def _write(context: Context, *, merge: bool) -> Answer:
    name = key_of_request(context)
    target = key_target(name)
    body = decode(context.request.body, LimitBody)
    if not context.request.flag("literal") and target not in context.store.state.keys:
        refusal = instead_of_pattern(context.store.rules(), name, body)
        if refusal:
            raise pattern(Fault(f"{{{list(context.request.path)[-1]}}}", refusal))
    change_context = context.change_context

    def edit() -> tuple[list[tuple[str, StoredOverride]], None]:
        require_match(context.request, lambda: etag(configured(context, name)))
        before = context.store.override(target) if merge else None
        return [(target, override(body, before, change_context))], None

    return await context.answer_change(edit, lambda: key_answer(context, name), body.reason)


put, patch = partial(_write, merge=False), partial(_write, merge=True)


async def delete(context: Context) -> Answer:
    name = key_of_request(context)
    target = key_target(name)

    def edit() -> tuple[list[tuple[str, None]], None]:
        require_match(context.request, lambda: etag(configured(context, name)))
        if target not in context.store.state.keys:
            raise not_found(f"the limit of {name.protocol} {name.text()} is not changed live; there is nothing to take back")
        return [(target, None)], None

    return await context.answer_change(edit, lambda: key_answer(context, name))


async def list_limits(context: Context) -> Answer:
    """Describes only the limits of the page."""
    request = context.request
    async with one_long_list():
        tag = etag(context.store.revision)  # a change that comes meanwhile may be in the list, and its revision is not
        chosen = Selection(await sort_key(context, request.query.get("sort", "name")), request)
        await find_entries(context, chosen.add)
        found, following = await chosen.ended()
    items: list[LimitInUse] = []
    for first in range(0, len(found), DESCRIBED_AT_ONCE):
        async with one_long_list():
            items += await describe(context, found[first : first + DESCRIBED_AT_ONCE])
    return Answer(LimitPage(items, following, chosen.seen), etag=tag)


KEY_PARAMETERS: Final = (
    Parameter("explain", "flag", "explain each level: the rules that do not hold and why, and levels without a limit"),
    *(Parameter(name, "text", f"for messages {key.sender}") for name, key in SENDER_KEYS.items()),
    Parameter("operation", "text", "one operation alone", choices=OPERATIONS),
)
LIST_PARAMETERS: Final = (
    Parameter("protocol", "text", "only limits of this protocol", choices=PROTOCOLS),
    QUERY,
    Parameter(
        "sort",
        "text",
        "name; or what is largest now first: used, refused, rate, wait; fill (emptiest first), last_refused (latest first)",
        choices=SORTS,
    ),
    LIMIT,
    CURSOR,
)

ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/limits", Role.VIEWER, list_limits, "Limits in use or changed live", answer=LimitPage,
          parameters=(*LIST_PARAMETERS, FORMAT), columns=LIMITS, views=("topics",)),
    *(
        route
        for template in (f"/v1/limits/{names.path}" for names in PROTOCOL_NAMES.values())
        for route in (
            Route("GET", template, Role.VIEWER, get, "The limits of a key, used or not, and why they hold", answer=KeyLimit,
                  parameters=KEY_PARAMETERS, views=()),
            Route("PUT", template, Role.OPERATOR, put, "Change a key's limit live", answer=KeyLimit | Preview, body=LimitBody,
                  parameters=SET_PARAMETERS, conditional=True, views=()),
            Route("PATCH", template, Role.OPERATOR, patch, "Change parts of a key's live change", answer=KeyLimit | Preview, body=LimitBody,
                  parameters=SET_PARAMETERS, conditional=True, views=()),
            Route("DELETE", template, Role.OPERATOR, delete, "Take a key's live change back", answer=KeyLimit | Preview,
                  parameters=WRITE_PARAMETERS, conditional=True, views=()),
        )
    ),
]  # fmt: skip
