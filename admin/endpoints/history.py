"""`/v1/history`: every change with author, time, reason, before and after; rolling back. `/v1/audit`: also refused and failed requests."""

from __future__ import annotations

from typing import Final

from admin.auth import Role
from admin.bodies import ReasonBody, decode
from admin.context import Context
from admin.paging import DEFAULT, LIMIT
from admin.preconditions import etag, require_match
from admin.problems import Fault, ProblemError, invalid, not_found
from admin.routing import WRITE_PARAMETERS, Answer, Parameter, Request, Route
from admin.snapshots import Publication
from admin.state import Edit, PublishedQuotas, StateError
from admin.views import AuditPage, HistoryEntry, HistoryPage, Preview

MAX_REVISION: Final = 10**15  # bounds the cursor; more changes than any gateway sees (guess)
BEFORE: Final = Parameter("cursor", "count", "`next` of the page before", most=MAX_REVISION)


def current_etag(context: Context) -> str:
    """An ETag of the current revision: the history only grows, so it stands for all that a reader has seen."""
    return etag(("history", context.store.revision))


def revision_of(request: Request) -> int:
    text = request.path["revision"].decode(errors="replace")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise not_found(f"{text!r} is no revision; GET /v1/history lists them")
    return int(text)


async def list_history(context: Context) -> Answer:
    request = context.request
    kept = context.store.revisions()
    before = request.count("cursor", MAX_REVISION)
    count = request.count("limit", DEFAULT)
    wanted = [revision for revision in kept if revision < before][-count:]
    entries = await context.store.entries(wanted)
    more = bool(wanted) and wanted[0] > kept[0]
    answer = HistoryPage(entries[::-1], str(wanted[0]) if more else None, context.store.revision, kept[0] if kept else None)
    return Answer(answer, etag=current_etag(context))


async def get(context: Context) -> Answer:
    revision = revision_of(context.request)
    entries = await context.store.entries([revision])
    if not entries:
        raise _not_kept(context, revision)
    return Answer(HistoryEntry(entries[0], context.store.revision), etag=current_etag(context))


async def rollback(context: Context) -> Answer:
    """Restore the state as of a revision, as a new revision."""
    revision = revision_of(context.request)
    body = decode(context.request.body, ReasonBody)
    store = context.store
    started = store.revision
    if revision >= started:
        raise invalid("there is nothing to roll back", [Fault("{revision}", f"the current revision is {started}; name an earlier one")])
    edits = await store.edits_back_to(revision)
    if edits is None:
        raise _not_kept(context, revision + 1)
    published = await _published_in(context, edits)

    def edit() -> tuple[list[Edit], Publication | None]:
        require_match(context.request, current_etag(context))
        if store.revision != started:
            raise ProblemError(
                412, "precondition-failed", "something was changed meanwhile; try again", headers={"ETag": current_etag(context)}
            )
        return edits, published

    reason = body.reason if isinstance(body.reason, str) else context.reason
    done = await context.change(edit, reason or f"back to revision {revision}", restoring=True)
    if isinstance(done, Preview):
        return Answer(done)
    entries = await store.entries([done.state.revision])
    return Answer(HistoryEntry(entries[0], store.revision), etag=current_etag(context))


async def _published_in(context: Context, edits: list[Edit]) -> Publication | None:
    for _, after in edits:
        if isinstance(after, PublishedQuotas):
            try:
                published = await context.store.snapshot(after.sha256)
            except StateError as error:
                raise ProblemError(409, "snapshot-damaged", "the quotas of that revision are damaged on disk") from error
            if published is None:
                raise ProblemError(409, "snapshot-gone", "the quotas of that revision are no longer kept; publish them again instead")
            return published
    return None


def _not_kept(context: Context, revision: int) -> ProblemError:
    kept = context.store.revisions()
    range_kept = f"revisions {kept[0]} to {kept[-1]} are kept" if kept else "there are none yet"
    return not_found(f"there is no revision {revision} in the history; {range_kept}")


async def audit(context: Context) -> Answer:
    request = context.request
    count = request.count("limit", DEFAULT)
    entries = await context.store.lines(request.count("cursor", MAX_REVISION), count)
    following = str(entries[-1].sequence) if len(entries) == count and entries[-1].sequence > 1 else None
    return Answer(AuditPage(entries, following))


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/history", Role.VIEWER, list_history, "Changes, the latest first", answer=HistoryPage, parameters=(LIMIT, BEFORE)),
    Route("GET", "/v1/history/{revision}", Role.VIEWER, get, "One change", answer=HistoryEntry),
    Route("POST", "/v1/history/{revision}:rollback", Role.OPERATOR, rollback, "Restore the state as of a revision, as a new one",
          answer=HistoryEntry | Preview, body=ReasonBody, body_required=False, parameters=WRITE_PARAMETERS, conditional=True),
    Route("GET", "/v1/audit", Role.OPERATOR, audit, "Changes and attempts, the latest first", answer=AuditPage, parameters=(LIMIT, BEFORE)),
]  # fmt: skip
