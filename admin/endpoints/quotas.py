"""`/v1/quotas`: the published quota snapshot, read and swapped as a whole (`docs/design/contract.md` 9).

The answer can be written back as it is. Before the first publication it is a snapshot without quotas.
"""

from __future__ import annotations

import re
from typing import Any, Final

import trio

from admin.auth import Role
from admin.context import Context
from admin.preconditions import etag, require_match
from admin.problems import Fault, ProblemError, invalid
from admin.routing import WRITE_PARAMETERS, Answer, Route
from admin.snapshots import Publication, publication
from admin.state import QUOTAS, Edit, PublishedQuotas, format_time
from admin.views import Preview, QuotasPublished
from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load
from limiter.rules.rule import RuleError

BODY_LIMIT: Final = 16 * 1024 * 1024
NOTHING: Final = Snapshot(computed_at="1970-01-01T00:00:00Z", code="none")


def current_etag(context: Context) -> str:
    return etag(context.store.state.quotas)


async def get(context: Context) -> Answer:
    reference = context.store.state.quotas
    current = current_etag(context)
    if reference is None:
        return Answer(dump(NOTHING), etag=current)
    published = await context.store.snapshot(reference.sha256)
    if published is None:
        raise ProblemError(404, "not-found", "the file of the published quotas is gone from the state directory; publish them again")
    return Answer(published.data, etag=current)


async def put(context: Context) -> Answer:
    try:
        published = await trio.to_thread.run_sync(lambda: publication(load(context.request.body)))
    except SnapshotError as error:
        message = str(error).removeprefix(f"{error.path}: ")
        raise invalid("these quotas cannot be published", [Fault(pointer(error.path), message)]) from error
    except RuleError as error:
        raise invalid("these quotas cannot be published", [Fault(pointer(error.field), error.message)]) from error
    reference = PublishedQuotas(
        sha256=published.sha256,
        quotas=len(published.by_topic),
        computed_at=published.snapshot.computed_at,
        by=context.request.actor.name,
        at=format_time(context.wall_clock()),
        reason=context.reason,
    )

    def edit() -> tuple[list[Edit], Publication]:
        require_match(context.request, current_etag(context))
        return [(QUOTAS, reference)], published

    done = await context.change(edit)
    if isinstance(done, Preview):
        return Answer(done)
    return Answer(QuotasPublished(reference, context.store.revision), etag=current_etag(context))


def pointer(path: str) -> str:
    """`quotas[3].messages.rate` as a JSON Pointer."""
    parts = re.findall(r"[^.\[\]]+", path)
    return "".join(f"/{part}" for part in parts)


ANSWER: Final[Any] = dict[str, Any]
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/quotas", Role.VIEWER, get, "The published quota snapshot", answer=ANSWER),
    Route("PUT", "/v1/quotas", Role.OPERATOR, put, "Publish a quota snapshot in place of the current one", answer=QuotasPublished | Preview,
          body=ANSWER, body_limit=BODY_LIMIT, parameters=WRITE_PARAMETERS, conditional=True),
]  # fmt: skip
