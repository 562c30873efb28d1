"""`/v1/history`: every change with author, time, reason, before and after; rolling back. `/v1/audit`: also refused and failed requests."""

from __future__ import annotations

from typing import Final

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.bodies import ReasonBody, decode
from admin.http.paging import DEFAULT, LIMIT
from admin.http.preconditions import etag, require_match
from admin.http.problems import Fault, ProblemError, invalid, not_found
from admin.http.routing import WRITE_PARAMETERS, Answer, Parameter, Request, Route
from admin.http.spreadsheet import FORMAT, HISTORY
from admin.store.audit_chain import AuditReport
from admin.store.journal import Entry
from admin.store.snapshots import Publication
from admin.store.state import Edit, PublishedQuotas, StateError, format_time, parse_time
from admin.views.views import AuditPage, HistoryEntry, HistoryPage, Preview

MAX_REVISION: Final = 999_999_999  # bounds the cursor; more changes than any gateway sees (guess)
BEFORE: Final = Parameter("cursor", "count", "`next` of the page before", most=MAX_REVISION)


def current_etag(context: Context) -> str:
    """An ETag of the current revision: the history only grows, so it stands for all that a reader has seen."""
    return etag(("history", context.store.revision))


def revision_of(request: Request) -> int:
    text = request.path["revision"].decode(errors="replace")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise not_found(f"{text!r} is no revision; GET /v1/history lists them")
    return int(text)


class EntryFilter:
    """The lines that a request asks for. Raises ProblemError 422 where a time cannot be read."""

    def __init__(self, request: Request) -> None:
        query = request.query
        self._by, self._outcome = query.get("by"), query.get("outcome")
        self._target = query.get("target", "").casefold()
        self._text = query.get("q", "").casefold()
        self._since, self._until = _moment(request, "since"), _moment(request, "until")

    def __call__(self, entry: Entry) -> bool:
        return (
            self._by in (None, entry.by)
            and self._outcome in (None, entry.outcome)
            and (self._since is None or entry.at >= self._since)
            and (self._until is None or entry.at < self._until)
            and (not self._target or any(self._target in change.target.casefold() for change in entry.changes))
            and (not self._text or self._contains(entry))
        )

    def _contains(self, entry: Entry) -> bool:
        texts = (entry.by, entry.action, entry.reason, entry.detail, entry.address, *(change.target for change in entry.changes))
        return any(self._text in text.casefold() for text in texts)


def _moment(request: Request, name: str) -> str | None:
    """A time of the query as journal lines have theirs: UTC with milliseconds, so that they compare as text."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        return format_time(parse_time(text))
    except (ValueError, OverflowError, OSError):
        raise invalid(
            "the time cannot be used", [Fault(f"?{name}", f"{text[:64]!r} is no time; write it as in 2026-11-21T12:00:00Z")]
        ) from None


async def list_history(context: Context) -> Answer:
    request, store = context.request, context.store
    kept = store.revisions()
    count = request.count("limit", DEFAULT)
    found = await store.changes(request.count("cursor", MAX_REVISION), count + 1, EntryFilter(request))
    shown = found[:count]
    following = str(shown[-1].revision) if len(found) > count else None
    return Answer(HistoryPage(shown, following, store.revision, kept[0] if kept else None), etag=current_etag(context))


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
        require_match(context.request, lambda: current_etag(context))
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
    found = await context.store.lines(request.count("cursor", MAX_REVISION), count + 1, EntryFilter(request))
    shown = found[:count]
    return Answer(AuditPage(shown, str(shown[-1].sequence) if len(found) > count else None))


async def verify(context: Context) -> Answer:
    return Answer(await context.store.verify())


BY: Final = Parameter("by", "text", "only lines of the token of this name", example="ops")
TARGET: Final = Parameter("target", "text", "only changes of a target that contains this, e.g. limits/rocketmq/orders, rules/, quotas")
TEXT: Final = Parameter("q", "text", "only lines with this in their author, action, reason, detail, address or target")
SINCE: Final = Parameter("since", "text", "only lines from this time on", example="2026-11-21T12:00:00Z")
UNTIL: Final = Parameter("until", "text", "only lines before this time", example="2026-11-22T00:00:00Z")
FILTERS: Final = (BY, TARGET, TEXT, SINCE, UNTIL)
OUTCOME: Final = Parameter("outcome", "text", "only lines of this outcome", choices=("applied", "done", "refused", "failed", "void"))
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/history", Role.VIEWER, list_history, "Changes, the latest first", answer=HistoryPage,
          parameters=(LIMIT, BEFORE, *FILTERS, FORMAT), columns=HISTORY),
    Route("GET", "/v1/history/{revision}", Role.VIEWER, get, "One change", answer=HistoryEntry),
    Route("POST", "/v1/history/{revision}:rollback", Role.OPERATOR, rollback, "Restore the state as of a revision, as a new one",
          answer=HistoryEntry | Preview, body=ReasonBody, body_required=False, parameters=WRITE_PARAMETERS, conditional=True),
    Route("GET", "/v1/audit", Role.OPERATOR, audit, "Changes and attempts, the latest first", answer=AuditPage,
          parameters=(LIMIT, BEFORE, OUTCOME, *FILTERS)),
    Route("GET", "/v1/audit:verify", Role.OPERATOR, verify, "Whether any line of the journals was altered, removed or moved",
          answer=AuditReport),
]  # fmt: skip
