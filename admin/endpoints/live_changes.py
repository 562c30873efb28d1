"""`/v1/live-changes`: all live changes of limits and rules as they are stored, to be given to another gateway in one piece.

An operator of many gateways holds them equal with it (`sluice fleet sync`): one request, one revision, one line of the history, and the way
back by a rollback. Quotas are not among them: they are published (`/v1/quotas`).

Who changed something, and when, is not for the body to say: an operator could set limits in another one's name. Of each change that is new
here the author is the request's token, and the time is now. An author whom the body names is kept as such: `fleet (for alice)`.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from admin.authentication.auth import Role
from admin.context import Context
from admin.endpoints.history import current_etag
from admin.http.bodies import LiveChangesBody, decode
from admin.http.preconditions import require_match
from admin.http.problems import Fault, invalid
from admin.http.routing import WRITE_PARAMETERS, Answer, Route
from admin.store.level_targets import is_level_target, level_key_of, level_target
from admin.store.snapshots import Publication
from admin.store.state import (
    QUOTAS,
    SHADOW,
    Edit,
    State,
    StateError,
    StoredOverride,
    StoredRule,
    as_json,
    format_time,
    from_json,
    key_of,
    key_target,
)
from admin.views.views import LiveChanges, Preview

MAX_AUTHOR: Final = 80  # characters of an author whom the body names; longer ones are cut (a guess)


def of_state(state: State) -> dict[str, dict[str, Any]]:
    """Each live change in its stored form, by its target, in order."""
    return {target: as_json(stored) or {} for target, stored in sorted(state.live_changes().items())}


def view(context: Context) -> LiveChanges:
    changes = of_state(context.store.state)
    digest = hashlib.sha256(msgspec.json.encode({target: in_force(each) for target, each in changes.items()}, order="deterministic"))
    return LiveChanges(changes, digest.hexdigest(), context.store.revision)


def spelling(target: str) -> str:
    """The target as the single requests spell it. Raises as `from_json`."""
    if is_level_target(target):
        return level_target(level_key_of(target))
    return key_target(key_of(target)) if target.startswith("limits/") else target


def in_force(stored: dict[str, Any]) -> dict[str, Any]:
    """A live change without who made it here and when: what two gateways have in common that do the same."""
    return {name: value for name, value in stored.items() if name not in {"by", "at"}}


def _first_author(by: str) -> str:
    """`alice` of `fleet (for alice)`: a change that goes from gateway to gateway keeps who made it, not each token on its way."""
    _, wrapped, author = by.partition(" (for ")
    return author.removesuffix(")") if wrapped and by.endswith(")") else by


def by_token(stored: StoredOverride | StoredRule, token: str, at: str) -> StoredOverride | StoredRule:
    """The change as one of the request's token now, whoever the body says has made it elsewhere."""
    named = "".join(letter for letter in _first_author(stored.by)[:MAX_AUTHOR] if letter.isprintable())
    return msgspec.structs.replace(stored, by=token if named in {"", token} else f"{token} (for {named})", at=at)


async def get(context: Context) -> Answer:
    return Answer(view(context), etag=current_etag(context))


async def put(context: Context) -> Answer:
    """Let these be the live changes, and no others."""
    body = decode(context.request.body, LiveChangesBody)
    if not isinstance(body.changes, dict):
        raise invalid("the live changes are missing", [Fault("/changes", "an object of live changes by their targets is needed")])
    wanted = body.changes
    faults = []
    stored: dict[str, StoredOverride | StoredRule] = {}
    for target, value in wanted.items():
        try:
            if target in {QUOTAS, SHADOW}:
                raise StateError("quotas are published, not copied: PUT /v1/quotas")
            change = from_json(target, value)
            assert isinstance(change, StoredOverride | StoredRule), "quotas are refused above"
            if target != (meant := spelling(target)):
                raise StateError(f"the path of this key is {meant}: in another spelling nobody finds the change")
            stored[target] = change
        except StateError as error:
            faults.append(Fault(f"/changes/{target.replace('~', '~0').replace('/', '~1')}", str(error)))
    if faults:
        raise invalid("there are live changes that cannot be read", faults)

    def edit() -> tuple[list[Edit], Publication | None]:
        require_match(context.request, lambda: current_etag(context))
        now = context.store.state.live_changes()
        edits: list[Edit] = [(target, None) for target in now if target not in stored]
        at = format_time(context.wall_clock())
        edits += [
            (target, by_token(after, context.author.name, at))
            for target, after in stored.items()
            if in_force(as_json(now.get(target)) or {}) != in_force(as_json(after) or {})
        ]
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
