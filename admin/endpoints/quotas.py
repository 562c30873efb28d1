"""`/v1/quotas`: the published quota snapshot, read and swapped as a whole (`docs/design/contract.md` 9), and one that is only tried.

The answer can be written back as it is. Before the first publication it is a snapshot without quotas.

`/v1/quotas/shadow` holds a snapshot in shadow mode: its quotas are judged beside what is in force, counted as would-have-refused, and never
enforced. Publishing at `/v1/quotas` ends the trial.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from admin.authentication.auth import Role
from admin.context import Context, remarks_on_quotas
from admin.http import spreadsheet
from admin.http.bodies import ENCODINGS, ReasonBody, decode
from admin.http.preconditions import etag, require_match
from admin.http.problems import Fault, ProblemError, invalid
from admin.http.routing import WRITE_PARAMETERS, Answer, Parameter, Route
from admin.http.side_thread import run_in_thread
from admin.http.spreadsheet import FORMAT
from admin.quota_watch import way_back
from admin.store.snapshots import Publication, publication
from admin.store.state import QUOTAS, SHADOW, Edit, PublishedQuotas, format_time
from admin.views.views import Preview, QuotasPublished, QuotasStatus
from limiter.quota_snapshot import MAX_PUBLISHED_BYTES, Snapshot, SnapshotError, dump, load
from limiter.rules.errors import RuleError

BODY_LIMIT: Final = MAX_PUBLISHED_BYTES
NOTHING: Final = Snapshot(computed_at="1970-01-01T00:00:00Z", code="none")
MILLION: Final = 1_000_000
RETURN_ABOVE: Final = Parameter(
    "return_above_ppm", "count", "put the quotas before back where more messages per million are refused than this", most=MILLION
)


def reference_of(context: Context, target: str) -> PublishedQuotas | None:
    return context.store.state.quotas if target == QUOTAS else context.store.state.shadow


async def get(context: Context, target: str = QUOTAS) -> Answer:
    reference = reference_of(context, target)
    current = etag(reference)
    if reference is None:
        return Answer(dump(NOTHING), etag=current)
    published = await context.store.snapshot(reference.sha256)
    if published is None:
        raise ProblemError(404, "not-found", "the file of the published quotas is gone from the state directory; publish them again")
    return Answer(published.data, etag=current)


async def put(context: Context, target: str = QUOTAS) -> Answer:
    try:
        published = await run_in_thread(lambda: publication(load(context.request.body)))
    except SnapshotError as error:
        message = str(error).removeprefix(f"{error.path}: ")
        raise invalid("these quotas cannot be published", [Fault(pointer(error.path), message)]) from error
    except RuleError as error:
        raise invalid("these quotas cannot be published", [Fault(pointer(error.field), error.message)]) from error
    above = context.request.count("return_above_ppm", 0) or None
    reference = PublishedQuotas(
        sha256=published.sha256,
        quotas=len(published.by_topic),
        computed_at=published.snapshot.computed_at,
        by=context.request.actor.name,
        at=format_time(context.wall_clock()),
        reason=context.reason,
        date=date_of(published.snapshot),
        return_above_ppm=above if target == QUOTAS else None,
        target_refused_ppm=target_of(published.snapshot),
    )

    def edit() -> tuple[list[Edit], Publication]:
        require_match(context.request, lambda: etag(reference_of(context, target)))
        tried = context.store.state.shadow
        if target == SHADOW:
            return [(SHADOW, one_night_more(reference, tried))], published
        ends: list[Edit] = [] if tried is None else [(SHADOW, None)]
        return [(QUOTAS, reference), *ends], published

    return await changed(context, edit, target)


async def changed(context: Context, edit: Any, target: str, reason: str = "") -> Answer:
    """Make the change, and answer with what is published at `target` then."""
    await context.quota_watch.look()  # what was counted until now belongs to what was in force
    done = await context.change(edit, reason, restoring=True)
    if isinstance(done, Preview):
        return Answer(done)
    await context.quota_watch.look()
    reference, revision = reference_of(context, target), context.store.revision
    remarks = await remarks_on_quotas(context.store.rules()) if target == QUOTAS and reference is not None else []
    return Answer(QuotasPublished(reference, revision, remarks), etag=etag(reference))


def one_night_more(reference: PublishedQuotas, tried: PublishedQuotas | None) -> PublishedQuotas:
    """The record of a snapshot to be tried after `tried`: a night counts once, however often it is published, or taken back."""
    if tried is None:
        return replace(reference, nights=1, since=reference.at)
    if reference.date and tried.date and reference.date < tried.date:  # the night of `tried` is taken back, and may come again
        return replace(reference, nights=max(1, tried.nights - 1), since=tried.since)
    same_night = (reference.date or reference.sha256) == (tried.date or tried.sha256)
    return replace(reference, nights=tried.nights + (not same_night), since=tried.since)


def target_of(snapshot: Snapshot) -> int | None:
    """Messages per million that it may refuse; None where it does not say."""
    found = snapshot.night.get("target_refused_ppm", snapshot.parameters.get("target_refused_ppm"))
    return found if type(found) is int and 0 < found <= MILLION else None


def date_of(snapshot: Snapshot) -> str:
    """The last day that it was learned from, YYYY-MM-DD; "" where it does not say."""
    date = getattr(snapshot, "date", "")
    return date if isinstance(date, str) else ""


async def end_trial(context: Context) -> Answer:
    def edit() -> tuple[list[Edit], None]:
        require_match(context.request, lambda: etag(context.store.state.shadow))
        return [(SHADOW, None)], None

    return await changed(context, edit, SHADOW)


async def rollback(context: Context) -> Answer:
    """Put the quotas before those in force back, and nothing else; each time one further back."""
    body = decode(context.request.body, ReasonBody)
    now = context.store.state.quotas
    if now is None:
        raise ProblemError(404, "not-found", "no quotas are published, so there is nothing to roll back")
    known, record, published = await way_back(context.store, format_time(context.wall_clock()))
    if not known:
        raise ProblemError(409, "snapshot-gone", "the history does not reach back to the quotas before; publish a snapshot instead")
    if record is not None and published is None:
        raise ProblemError(409, "snapshot-gone", f"the quotas of {record.at} ({record.sha256}) are no longer kept; publish them again")

    def edit() -> tuple[list[Edit], Publication | None]:
        require_match(context.request, lambda: etag(context.store.state.quotas))
        if context.store.state.quotas != now:
            raise ProblemError(412, "precondition-failed", "the quotas were changed meanwhile; try again", headers={"ETag": etag(now)})
        return [(QUOTAS, record)], published

    return await changed(context, edit, QUOTAS, body.reason if isinstance(body.reason, str) else "")


async def status(context: Context) -> Answer:
    """What is in force and what is tried, with what each has refused, or would have."""
    watch = context.quota_watch
    await watch.look()
    state = context.store.state
    return Answer(
        QuotasStatus(
            published=state.quotas,
            shadow=state.shadow,
            age_seconds=watch.age_s(),
            realised=watch.realised(QUOTAS),
            would_refuse=watch.realised(SHADOW),
            encodings=[each.decode() for each in ENCODINGS],
        ),
        etag=etag(state.quotas),
    )


def pointer(path: str) -> str:
    """`quotas[3].messages.rate` as a JSON Pointer."""
    parts = re.findall(r"[^.\[\]]+", path)
    return "".join(f"/{part}" for part in parts)


ANSWER: Final[Any] = dict[str, Any]
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/quotas", Role.VIEWER, get, "The published quota snapshot", answer=ANSWER, refusals=(404,),
          parameters=(FORMAT,), columns=spreadsheet.QUOTAS),
    Route("PUT", "/v1/quotas", Role.OPERATOR, put, "Publish a quota snapshot in place of the current one; ends the trial of another",
          answer=QuotasPublished | Preview, body=ANSWER, body_limit=BODY_LIMIT, parameters=(*WRITE_PARAMETERS, RETURN_ABOVE),
          conditional=True),
    Route("GET", "/v1/quotas/shadow", Role.VIEWER, partial(get, target=SHADOW), "The quota snapshot that is tried in shadow mode",
          answer=ANSWER, refusals=(404,)),
    Route("PUT", "/v1/quotas/shadow", Role.OPERATOR, partial(put, target=SHADOW), "Try a quota snapshot in shadow mode",
          answer=QuotasPublished | Preview, body=ANSWER, body_limit=BODY_LIMIT, parameters=WRITE_PARAMETERS, conditional=True),
    Route("DELETE", "/v1/quotas/shadow", Role.OPERATOR, end_trial, "End the trial", answer=QuotasPublished | Preview,
          parameters=WRITE_PARAMETERS, conditional=True),
    Route("GET", "/v1/quotas/status", Role.VIEWER, status, "The quotas in force and tried, and what they have refused, or would have",
          answer=QuotasStatus),
    Route("POST", "/v1/quotas:rollback", Role.OPERATOR, rollback, "Put the quotas before those in force back, and nothing else",
          answer=QuotasPublished | Preview, body=ReasonBody, body_required=False, parameters=WRITE_PARAMETERS, conditional=True,
          refusals=(404,)),
]  # fmt: skip
