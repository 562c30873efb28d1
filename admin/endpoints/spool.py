"""`/v1/spool`: what waits on the gateway's disk because a rule says `action: spool`, as a whole and by topic; and what is done with it.

A topic can be paused and resumed, and what waits of it be given up. None of it changes the durable state, since messages do not survive the
gateway: it is in the audit, with its reason, and not in the history.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from admin import spreadsheet
from admin.auth import Role
from admin.bodies import ReasonBody, SpoolDrainBody, SpoolPauseBody, decode
from admin.context import Context
from admin.endpoints.limits import holding, key_of_request
from admin.paging import CURSOR, LIMIT, PROTOCOL, QUERY, SortKey, matches, one_long_list, page
from admin.problems import Fault, ProblemError, invalid, not_found
from admin.routing import Answer, Parameter, Route
from admin.spreadsheet import FORMAT
from admin.state import format_time
from admin.views import Done
from limiter.protocols import PROTOCOL_NAMES
from limiter.units import parse_from_now

JSONObject = dict[str, Any]
SORTS: Final[dict[str, str]] = {"messages": "messages", "bytes": "bytes", "wait": "waiting_seconds", "name": ""}


class SpoolPage(msgspec.Struct, frozen=True):
    """The topics that wait in the spool (`items`), and the spool as a whole, over all workers.

    Of a topic: `messages`, `bytes` of its publishes, `waiting_seconds`: seconds that something of it has waited without an end, and
    `paused`: null, or `until` when (null: until it is resumed), `reason` and `by`. A topic that is paused is shown without messages, too.
    `spool`: `size_bytes` that its files may take and `used_bytes` that they take; `messages` and `topics` that wait, in memory or on
    disk; `written_bytes`, `read_bytes`, `damaged_batches` (that could not be read back) and messages `given_up` by operators, and
    `expired` (given up for their age), since the start; of rules with `answer: accepted_by_gateway` messages `accepted`, and of these
    `accepted_refused` by the broker later, `accepted_lost` and `accepted_given_up` by operators, since the start; topics that are
    `paused`; `full`: whether a client waits for room; `trouble`: why nothing can be written just now, or null. Of rules with
    `durable: true`: `uncommitted_bytes` that a crash would lose now, `commits` so far, `replaying_bytes` of files that are to be
    replayed, and since the start `replayed_messages`, `set_aside_messages` that the broker did not take and `set_aside_damages`
    (stretches of damaged files); `replay_trouble`: why some of it waits, or null.
    """

    items: list[dict[str, Any]]
    next: str | None
    total: int
    spool: dict[str, Any]


class SpoolPaused(msgspec.Struct, frozen=True):
    """Nothing of the topic leaves the spool `until` then (null: until it is resumed). `remarks`: why that may have no effect."""

    protocol: str
    topic: str
    until: str | None
    reason: str
    by: str
    remarks: list[str] = []


class SpoolGivenUp(msgspec.Struct, frozen=True):
    """Messages of a topic that wait in the spool and are given up, each when its turn comes; with `dry_run` those that would be.

    `bytes` of their publishes, `connections` whose they are, and the numbers of the first of these. `faults`: why others are not given up,
    or durable ones may come back.
    """

    protocol: str
    topic: str
    messages: int
    bytes: int
    connections: int
    connection_ids: list[int]
    dry_run: bool = False
    faults: list[str] = []


class SpoolDrained(SpoolGivenUp, frozen=True):
    """The same, and the `files` on the gateway's machine that they are in, one of each worker that had any."""

    files: list[str] = []


async def spool(context: Context) -> Answer:
    request = context.request
    protocol, topic, number = request.query.get("protocol"), request.query.get("topic"), SORTS[request.query.get("sort", "messages")]

    def wanted(item: JSONObject) -> bool:
        return protocol in (None, item["protocol"]) and topic in (None, item["topic"]) and matches(request, item["topic"])

    def key(item: JSONObject) -> SortKey:
        return -float(item[number]) if number else 0.0, f"{item['topic']} {item['protocol']}"

    async with one_long_list():
        items = [item for item in await context.gateway.spooled_topics() if wanted(item)]
    found, following = await page(items, key, request)
    return Answer(SpoolPage(found, following, len(items), context.gateway.spool()))


def topic_of(context: Context) -> tuple[str, str]:
    """The topic that the path names: its protocol, and its text."""
    name = key_of_request(context)
    return name.protocol, name.text()


def reason_of(context: Context, reason: object) -> str:
    """Raises ProblemError 422 where none is given: whoever finds messages gone must find why."""
    found = reason.strip() if isinstance(reason, str) and reason.strip() else context.reason.strip()
    if not found:
        raise invalid("a reason is needed", [Fault("/reason", "say why; it is kept in the audit")])
    return found


async def pause(context: Context) -> Answer:
    """Let nothing of a topic leave the spool, in every worker, for a time or until it is resumed."""
    body = decode(context.request.body, SpoolPauseBody)
    topic, reason, by = topic_of(context), reason_of(context, body.reason), context.request.actor.name
    until = None if not isinstance(body.duration, str) else context.wall_clock() + _seconds(body.duration)
    ends = "" if until is None else format_time(until)
    if not context.request.flag("dry_run"):
        await context.gateway.pause_spool(topic, {"until": until, "ends": ends, "reason": reason, "by": by})
    spooled = any(each.rule.action == "spool" and each.rule.mode == "enforce" for _, each in holding(context, key_of_request(context)))
    remarks = [] if spooled else ["no rule spools this topic, whoever sends: only what a rule spools is held"]
    return Answer(SpoolPaused(*topic, ends or None, reason, by, remarks), reason=reason, detail=f"until {ends or 'resumed'}")


def _seconds(text: str) -> float:
    try:
        seconds = parse_from_now(text) / 1e9
    except ValueError as error:
        raise invalid("the duration cannot be used", [Fault("/for", str(error))]) from error
    if not 0 < seconds <= MAX_PAUSE_S:
        raise invalid("the duration cannot be used", [Fault("/for", f"{text[:64]} is not above 0s and at most {MAX_PAUSE_S // 86_400}d")])
    return seconds


async def resume(context: Context) -> Answer:
    body = decode(context.request.body, ReasonBody)
    topic, dry_run = topic_of(context), context.request.flag("dry_run")
    if dry_run:
        paused = any((item["protocol"], item["topic"]) == topic and item.get("paused") for item in await context.gateway.spooled_topics())
    else:
        paused = await context.gateway.resume_spool(topic)
    if not paused:
        raise not_found(f"{topic[1]} is not paused; GET /v1/spool shows what is")
    reason = body.reason if isinstance(body.reason, str) else ""
    return Answer(Done(f"{topic[1]} {'would go' if dry_run else 'goes'} on at its limit"), reason=reason)


async def discard(context: Context) -> Answer:
    body = decode(context.request.body, ReasonBody)
    topic, dry_run, reason = topic_of(context), context.request.flag("dry_run"), reason_of(context, body.reason)
    found = await context.gateway.discard_spooled(topic, dry_run=dry_run)
    given_up = msgspec.convert({**found, "protocol": topic[0], "topic": topic[1], "dry_run": dry_run}, SpoolGivenUp)
    if given_up.faults and not given_up.messages:
        raise ProblemError(500, "not-discarded", f"nothing was given up: {'; '.join(given_up.faults)}")
    detail = f"{given_up.messages} messages of {given_up.connections} connections"
    return Answer(given_up, reason=reason, detail="; ".join([detail, *given_up.faults]))


async def drain(context: Context) -> Answer:
    """Bodies of messages never go through the API: whoever may read them reads the file, on the gateway's machine."""
    body = decode(context.request.body, SpoolDrainBody)
    topic, dry_run, reason = topic_of(context), context.request.flag("dry_run"), reason_of(context, body.reason)
    if not FILE_NAME.fullmatch(body.to):
        raise invalid("the file cannot be named so", [Fault("/to", "a name without a folder, of letters, digits, `.`, `_` and `-`")])
    try:
        found = await context.gateway.drain_spool(topic, body.to, dry_run=dry_run)
    except FileExistsError as error:
        raise ProblemError(409, "file-exists", str(error)) from None
    drained = msgspec.convert({**found, "protocol": topic[0], "topic": topic[1], "dry_run": dry_run}, SpoolDrained)
    if drained.faults and not drained.messages:
        raise ProblemError(500, "not-drained", f"nothing was given up: {'; '.join(drained.faults)}")
    detail = f"{drained.messages} messages of {drained.connections} connections to {', '.join(drained.files) or 'no file'}"
    return Answer(drained, reason=reason, detail="; ".join([detail, *drained.faults]))


TOPIC: Final = Parameter("topic", "text", "only the topic of exactly this name")
SORT: Final = Parameter("sort", "text", "the largest first: messages, bytes, wait (seconds); or name", choices=tuple(SORTS))
DRY: Final = Parameter("dry_run", "flag", "change nothing, and answer what would be done")
REASON: Final = Parameter("reason", "text", "why; kept in the audit (a body's own `reason` wins)")
ACTING: Final = (DRY, REASON)
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_PAUSE_S: Final = 30 * 86_400  # seconds; messages wait meanwhile; a guess
PATHS: Final = [f"/v1/spool/{names.path}" for names in PROTOCOL_NAMES.values() if names.spools]
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/spool", Role.VIEWER, spool, "The spool, and the topics that wait in it", answer=SpoolPage,
          parameters=(PROTOCOL, TOPIC, QUERY, SORT, LIMIT, CURSOR, FORMAT), columns=spreadsheet.SPOOL),
]  # fmt: skip
for path in PATHS:
    ROUTES.extend([
        Route("POST", f"{path}:pause", Role.OPERATOR, pause, "Let nothing of a topic leave the spool, for a time or until it is resumed",
              answer=SpoolPaused, body=SpoolPauseBody, body_required=False, parameters=ACTING),
        Route("POST", f"{path}:resume", Role.OPERATOR, resume, "Let a topic that was paused leave the spool again", answer=Done,
              body=ReasonBody, body_required=False, parameters=ACTING, refusals=(404,)),
        Route("POST", f"{path}:discard", Role.OPERATOR, discard, "Give up what waits of a topic in the spool now", answer=SpoolGivenUp,
              body=ReasonBody, body_required=False, parameters=ACTING, refusals=(500,)),
        Route("POST", f"{path}:drain", Role.OPERATOR, drain, "Write what waits of a topic in the spool to a file, and then give it up",
              answer=SpoolDrained, body=SpoolDrainBody, parameters=ACTING, refusals=(409, 500)),
    ])  # fmt: skip
