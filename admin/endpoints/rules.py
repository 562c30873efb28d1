"""`/v1/rules`: all rules, the live change of one, and rules added live. Live changes of keys stay when a rule changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace as with_fields

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.bodies import (
    ChangeContext,
    LimitBody,
    ReasonBody,
    RuleBody,
    decode,
    expiry_of,
    is_whole_rule,
    override,
    position_of,
    rule_text,
)
from admin.http.paging import CURSOR, LIMIT, matches, page_in_order
from admin.http.preconditions import etag, require_match
from admin.http.problems import Fault, ProblemError, invalid, not_found
from admin.http.routing import WRITE_PARAMETERS, Answer, Parameter, Route
from admin.http.spreadsheet import FORMAT, RULES
from admin.promotion import promote_candidate
from admin.store.state import Edit, StoredOverride, StoredRule, format_time, live_rule_target, rule_target
from admin.views.limit_views import candidate_usage
from admin.views.rule_views import RuleList, RuleView, rule_view
from admin.views.views import Preview
from limiter.rules.match import PROTOCOLS
from limiter.rules.rule_set import UNRULED
from limiter.rules.rule_text import RuleTextError

if TYPE_CHECKING:
    from limiter.rules.rule import Rule


def name_of(context: Context) -> str:
    return context.request.path["name"].decode(errors="surrogateescape")


def views(context: Context, wanted: Sequence[Rule] | None = None) -> list[RuleView]:
    """Of `wanted`, or of all rules, in the order in which they are tried."""
    store = context.store
    rules, unfit = store.rules(), store.unfit()
    in_file = {rule.name for rule in store.file_rules}
    found = []
    for file_rule in store.all_rules() if wanted is None else wanted:
        stored = store.override(rule_target(file_rule.name))
        rule = rules.rule(file_rule.name) or file_rule
        live = store.live_rule(rule.name)
        found.append(rule_view(rule, file_rule, stored, unfit.get(rule.name), live, in_file=rule.name in in_file))
    return found


def view(context: Context, name: str) -> RuleView:
    for found in views(context):
        if found.name == name:
            return found
    raise not_found(f"no rule of the configuration is called {name!r}; GET /v1/rules lists them")


def configured(context: Context, name: str) -> tuple[Any, ...]:
    """The parts of a rule that its ETag covers; of a rule that is gone only its live change is left."""
    known = [found for found in views(context) if found.name == name]
    return (known, context.store.override(rule_target(name)), context.store.live_rule(name))


async def answer(context: Context, name: str) -> Answer:
    store = context.store
    rule = store.rules().rule(name)
    text = None if rule is None else store.rule_texts.show(rule)
    found, tag = with_fields(view(context, name), text=text), etag(configured(context, name))
    return Answer((await counted(context, [found]))[0], etag=tag)


async def counted(context: Context, found: list[RuleView]) -> list[RuleView]:
    """The rules with the counts of their candidates and of shadow mode, which are no part of the ETag."""
    counts = context.gateway.judge.candidates(context.request.now)
    shadows = {each.name: 0 for each in found if each.mode == "shadow"}
    if shadows:
        async for states in context.states_in_slices():
            for state in states:
                rule = state.effective.rule
                if rule.name in shadows and rule.mode == "shadow":
                    shadows[rule.name] += state.would_refuse
    found = [with_fields(each, would_refuse=shadows[each.name]) if each.name in shadows else each for each in found]
    return [
        with_fields(each, candidate_usage=candidate_usage(counts[each.name], context.seconds_at))
        if each.candidate is not None and each.name in counts
        else each
        for each in found
    ]


async def list_rules(context: Context) -> Answer:
    """Describes only the rules of the page."""
    request, every = context.request, context.store.all_rules()
    known = {rule.name for rule in every}
    orphans = {
        name: stored for name in context.store.state.rules if name not in known if (stored := context.store.override(rule_target(name)))
    }
    protocol = request.query.get("protocol")
    wanted = [
        rule
        for rule in every
        if protocol is None or rule.match.spoken() in (None, protocol)
        if matches(request, rule.name, *patterns(rule))
    ]
    shown, following = page_in_order(wanted, lambda rule: rule.name, request)
    found = views(context, shown)
    tag, revision = etag((found, orphans, following, len(wanted))), context.store.revision  # of this moment: counting takes turns
    return Answer(RuleList(await counted(context, found), orphans, revision, following, len(wanted)), etag=tag)


def patterns(rule: Rule) -> Iterator[str]:
    """What the rule's match says."""
    return (rule.match.text_of(name) for name in rule.match.given())


async def get(context: Context) -> Answer:
    return await answer(context, name_of(context))


async def put(context: Context) -> Answer:
    name = name_of(context)
    if is_whole_rule(context.request.body):
        return await _put_rule(context, name)
    if all(rule.name != name for rule in context.store.all_rules()):
        raise not_found(f"no rule is called {name!r}; GET /v1/rules lists them, and a body with match, per and limit adds one")
    body = decode(context.request.body, LimitBody)
    change_context = context.change_context

    def edit() -> tuple[list[tuple[str, StoredOverride]], None]:
        require_match(context.request, lambda: etag(configured(context, name)))
        return [(rule_target(name), override(body, None, change_context, of_rule=True))], None

    return await context.answer_change(edit, lambda: answer(context, name), body.reason)


async def _put_rule(context: Context, name: str) -> Answer:
    """Add a rule live, or put another in the place of one that has the name already."""
    body = decode(context.request.body, RuleBody)
    store, now = context.store, context.wall_clock()
    faults = []
    if name == UNRULED.name:
        faults.append(Fault("{name}", f"{name!r} is what limits without a rule are called; choose another name"))
    if body.name not in (UNSET, name):
        faults.append(Fault("/name", f"{body.name!r} is not the name in the path, {name!r}; leave it out"))
    position = position_of(body)
    neighbour = position.partition(" ")[2]
    if neighbour == name or (neighbour and all(rule.name != neighbour for rule in store.all_rules())):
        faults.append(Fault(f"/{position.partition(' ')[0]}", f"there is no other rule {neighbour!r}; GET /v1/rules lists them"))
    text = rule_text(body)
    try:
        name.encode()
        store.rule_texts.read(name, text)
    except UnicodeEncodeError:
        faults.append(Fault("/name", "is not UTF-8; write it like orders"))
    except RuleTextError as error:
        faults += [Fault("/" + fault.field.replace(".", "/") if fault.field else "", fault.message) for fault in error.faults]
    if faults:
        raise invalid("the rule cannot be used", faults)
    reason = body.reason if isinstance(body.reason, str) else context.reason
    expires = expiry_of(body, now)

    def edit() -> tuple[list[Edit], None]:
        require_match(context.request, lambda: etag(configured(context, name)), exists=any(rule.name == name for rule in store.all_rules()))
        before = store.live_rule(name)
        keeps_place = before is not None and not position
        rule = StoredRule(
            text,
            before.number if before is not None and keeps_place else store.revision + 1,
            before.position if before is not None and keeps_place else position,
            expires,
            context.request.actor.name,
            format_time(now),
            reason,
        )
        edits: list[Edit] = [(live_rule_target(name), rule)]
        if name in store.state.rules:  # a whole rule states the whole
            edits.append((rule_target(name), None))
        return edits, None

    return await context.answer_change(edit, lambda: answer(context, name), reason)


async def promote(context: Context) -> Answer:
    """Make the rule's candidate its limit, and remove the candidate; a rollback restores both."""
    name = name_of(context)
    view(context, name)
    body = decode(context.request.body, ReasonBody)
    reason = body.reason if isinstance(body.reason, str) else context.reason
    change_context = ChangeContext(context.request.actor.name, context.wall_clock(), reason or "candidate promoted")

    def edit() -> tuple[list[tuple[str, StoredOverride]], None]:
        require_match(context.request, lambda: etag(configured(context, name)))
        store = context.store
        rule = store.rules().rule(name)
        file_rule = next(each for each in store.all_rules() if each.name == name)
        if rule is None or rule.candidate is None:
            remedy = f'name one in the configuration, or PUT /v1/rules/{name} with {{"candidate": {{"messages": "300/s"}}}}'
            raise ProblemError(409, "no-candidate", f"the rule {name!r} has no candidate to promote; {remedy}")
        return [(rule_target(name), promote_candidate(store.override(rule_target(name)), file_rule, rule, change_context))], None

    return await context.answer_change(edit, lambda: answer(context, name), change_context.reason)


async def delete(context: Context) -> Answer:
    name = name_of(context)

    def edit() -> tuple[list[Edit], None]:
        require_match(context.request, lambda: etag(configured(context, name)))
        state = context.store.state
        edits: list[Edit] = []
        if name in state.live_rules:
            edits.append((live_rule_target(name), None))
        if name in state.rules:
            edits.append((rule_target(name), None))
        if not edits:
            raise not_found(f"the rule {name!r} is neither added nor changed live; there is nothing to take back")
        return edits, None

    async def left() -> Answer:
        gone = all(rule.name != name for rule in context.store.all_rules())
        return await (list_rules(context) if gone else answer(context, name))

    return await context.answer_change(edit, left)


LIST_PARAMETERS: Final = (
    Parameter("protocol", "text", "only rules for messages of this protocol; those that name none are for every one", choices=PROTOCOLS),
    Parameter("q", "text", "only rules whose name or match contains this, upper and lower case alike"),
    LIMIT,
    CURSOR,
)
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/rules", Role.VIEWER, list_rules, "Rules, in the order in which they are tried", answer=RuleList,
          parameters=(*LIST_PARAMETERS, FORMAT), columns=RULES),
    Route("GET", "/v1/rules/{name}", Role.VIEWER, get, "One rule: as it holds, as the file has it", answer=RuleView),
    Route("PUT", "/v1/rules/{name}", Role.OPERATOR, put, "Change a rule's limit live, or add a rule", answer=RuleView | Preview,
          body=LimitBody | RuleBody, parameters=WRITE_PARAMETERS, conditional=True),
    Route("POST", "/v1/rules/{name}:promote", Role.OPERATOR, promote, "Make a rule's candidate its limit", answer=RuleView | Preview,
          body=ReasonBody, body_required=False, parameters=WRITE_PARAMETERS, conditional=True, statuses=(200,)),
    Route("DELETE", "/v1/rules/{name}", Role.OPERATOR, delete, "Take a rule's live change back, or remove a rule added live",
          answer=RuleView | RuleList | Preview,
          parameters=WRITE_PARAMETERS, conditional=True),
]  # fmt: skip
