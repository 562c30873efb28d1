"""`/v1/live-changes`: all live changes of limits and rules as they are stored, to be given to another gateway in one piece.

An operator of many gateways holds them equal with it (`sluice fleet sync`): one request, one revision, one line of the history, and the way
back by a rollback. Quotas are not among them: they are published (`/v1/quotas`).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from admin.auth import Role
from admin.bodies import LiveChangesBody, decode
from admin.context import Context
from admin.endpoints.history import current_etag
from admin.preconditions import require_match
from admin.problems import Fault, invalid
from admin.routing import WRITE_PARAMETERS, Answer, Route
from admin.snapshots import Publication
from admin.state import QUOTAS, SHADOW, Edit, State, StateError, as_json, from_json
from admin.views import LiveChanges, Preview


def of_state(state: State) -> dict[str, dict[str, Any]]:
    """Each live change in its stored form, by its target, in order."""
    return {target: as_json(stored) or {} for target, stored in sorted(state.live_changes().items())}


def view(context: Context) -> LiveChanges:
    changes = of_state(context.store.state)
    digest = hashlib.sha256(msgspec.json.encode(changes, order="deterministic")).hexdigest()
    return LiveChanges(changes, digest, context.store.revision)


async def get(context: Context) -> Answer:
    return Answer(view(context), etag=current_etag(context))


async def put(context: Context) -> Answer:
    """Let these be the live changes, and no others."""
    body = decode(context.request.body, LiveChangesBody)
    if not isinstance(body.changes, dict):
        raise invalid("the live changes are missing", [Fault("/changes", "an object of live changes by their targets is needed")])
    wanted = body.changes
    faults = []
    stored = {}
    for target, value in wanted.items():
        try:
            if target in {QUOTAS, SHADOW}:
                raise StateError("quotas are published, not copied: PUT /v1/quotas")
            stored[target] = from_json(target, value)
        except StateError as error:
            faults.append(Fault(f"/changes/{target.replace('~', '~0').replace('/', '~1')}", str(error)))
    if faults:
        raise invalid("there are live changes that cannot be read", faults)

    def edit() -> tuple[list[Edit], Publication | None]:
        require_match(context.request, current_etag(context))
        now = context.store.state.live_changes()
        edits: list[Edit] = [(target, None) for target in now if target not in stored]
        edits += [(target, after) for target, after in stored.items() if as_json(now.get(target)) != as_json(after)]
        if not edits:
            raise _SameError
        return edits, None

    try:
        done = await context.change(edit, body.reason if isinstance(body.reason, str) else context.reason)
    except _SameError:
        return Answer(view(context), etag=current_etag(context))
    return Answer(done) if isinstance(done, Preview) else Answer(view(context), etag=current_etag(context))


class _SameError(Exception):
    """There is nothing to change."""


ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/live-changes", Role.VIEWER, get, "All live changes of limits and rules, as they are stored", answer=LiveChanges),
    Route("PUT", "/v1/live-changes", Role.OPERATOR, put, "Let these be the live changes, and no others: another gateway's",
          answer=LiveChanges | Preview, body=LiveChangesBody, parameters=WRITE_PARAMETERS, conditional=True),
]  # fmt: skip
