"""`/v1/limits/client/…`, `/v1/limits/consume/queue/…` and their like: limits of what is not published to a topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from admin.authentication.auth import Role
from admin.endpoints.limits import bounded_names, remarks_on_change
from admin.http.bodies import LimitBody, decode, override
from admin.http.preconditions import etag, require_match
from admin.http.problems import Fault, invalid, not_found, pattern
from admin.http.routing import SET_PARAMETERS, WRITE_PARAMETERS, Answer, Route
from admin.pattern_refusal import instead_of_network, instead_of_pattern_of_level
from admin.store.level_targets import PARTS, level_key, level_target, operation_of, template, words_of
from admin.views.level_views import LevelLimit, holding
from admin.views.limit_views import Level, level_of, remarks_on_limits, usage_of
from admin.views.views import Preview
from limiter.operations import CONSUME, PRODUCE, REQUEUE
from limiter.protocols import protocol_of_level
from limiter.rules.level_keys import LEVEL_WORDS

if TYPE_CHECKING:
    from admin.context import Context
    from admin.store.state import StoredOverride
    from limiter.rules.level_keys import LevelKey
    from limiter.rules.rule_set import Effective


def operation_and_word(context: Context) -> tuple[str, str]:
    """Of /v1/limits/consume/queue/{vhost}/{queue}: consume and queue."""
    words = unquote(context.request.head.path).split("/")
    operation = operation_of(words[3])
    return operation, words[3] if operation == PRODUCE else words[4]


def key_of_request(context: Context, body: LimitBody | None = None) -> LevelKey:
    """The key that the path names; raises ProblemError 422 where there can be none. `body`: of a change, for the command that would do."""
    operation, word = operation_and_word(context)
    names = bounded_names(context)
    try:
        return level_key(operation, word, list(names.values()))
    except ValueError as error:
        refusal = instead_of_network(names["client"].decode(errors="replace"), operation, body) if word == "client" else ""
        if refusal:
            raise pattern(Fault("{client}", refusal)) from error
        message = f"{error}; give an address without its port, e.g. 10.0.0.7" if word == "client" else str(error)
        raise invalid("nothing can have this name", [Fault(f"{{{next(iter(names))}}}", message)]) from error


def stored(context: Context, key: LevelKey) -> StoredOverride | None:
    return context.store.override(level_target(key))


def configured(context: Context, key: LevelKey) -> tuple[Any, ...]:
    """The parts of a key that its ETag covers."""
    return (stored(context, key), [level_of(each, operation=key.operation) for each in holding(context.store.rules(), key)])


async def key_answer(context: Context, key: LevelKey) -> Answer:
    found = holding(context.store.rules(), key)

    def level(effective: Effective) -> Level:
        state = context.gateway.judge.state_of(effective.identity, context.request.now)
        if state is None or state.operation != key.operation:
            return level_of(effective, operation=key.operation)
        return level_of(effective, usage_of(state, None, context.seconds_at), key.operation)

    view = LevelLimit(
        key=words_of(key),
        operation=key.operation,
        per=key.per,
        thing=key.thing,
        path=f"/v1/{level_target(key)}",
        revision=context.store.revision,
        override=stored(context, key),
        levels=[level(effective) for effective in found],
        remarks=remarks_on(context, key, found),
    )
    return Answer(view, etag=etag(configured(context, key)))


def remarks_on(context: Context, key: LevelKey, found: list[Effective]) -> list[str]:
    """What of its limits is not enforced; and why a live change may have no effect, or another than was meant."""
    change = stored(context, key)
    remarks = remarks_on_limits(change, found)
    return remarks if change is None else remarks + remarks_on_change(context, key.protocol or protocol_of_level(key.per), found)


def require_listener(context: Context, key: LevelKey) -> None:
    """Raises ProblemError 422 for a listener that there is none of: the change would never limit anything."""
    known = [each.name for each in context.gateway.listeners()]
    if key.per == "listener" and key.thing not in known:
        message = f"there is no listener {key.thing!r}; known: {', '.join(known)}"
        raise invalid("nothing has this name", [Fault("{listener}", message)])


def require_no_pattern(context: Context, key: LevelKey, body: LimitBody) -> None:
    """Raises ProblemError 422 for a pattern, with the command for all that match; not where that very name is changed live already."""
    if context.request.flag("literal") or key.per in {"client", "listener"} or stored(context, key) is not None:
        return
    operation, word = operation_and_word(context)
    refusal = instead_of_pattern_of_level(word, context.request.path, operation, key.per, body)
    if refusal:
        raise pattern(Fault(f"{{{list(context.request.path)[-1]}}}", refusal))


async def get(context: Context) -> Answer:
    return await key_answer(context, key_of_request(context))


async def _write(context: Context, *, merge: bool) -> Answer:
    body = decode(context.request.body, LimitBody)
    key = key_of_request(context, body)
    require_listener(context, key)
    require_no_pattern(context, key, body)
    change_context = context.change_context

    def edit() -> tuple[list[tuple[str, StoredOverride]], None]:
        require_match(context.request, lambda: etag(configured(context, key)))
        return [(level_target(key), override(body, stored(context, key) if merge else None, change_context))], None

    return await context.answer_change(edit, lambda: key_answer(context, key), body.reason)


put, patch = partial(_write, merge=False), partial(_write, merge=True)


async def delete(context: Context) -> Answer:
    key = key_of_request(context)

    def edit() -> tuple[list[tuple[str, None]], None]:
        require_match(context.request, lambda: etag(configured(context, key)))
        if level_target(key) not in context.store.state.levels:
            raise not_found(f"the limit of {words_of(key)} is not changed live; there is nothing to take back")
        return [(level_target(key), None)], None

    return await context.answer_change(edit, lambda: key_answer(context, key))


DOES: Final = {PRODUCE: "publishes", CONSUME: "consumes", REQUEUE: "gives back"}


def routes_of(operation: str, word: str) -> list[Route]:
    path = f"/v1/{template(operation, word)}"
    thing = f"what a {word} {DOES[operation]}"
    if operation == REQUEUE:
        thing = f"what is given back to a {word}" if word == "queue" else f"what a {word}'s consumers give back"
    elif word in {"queue", "rocketmq"}:
        thing = f"what is delivered from a {'queue' if word == 'queue' else 'RocketMQ topic'}"
    elif operation == PRODUCE and not LEVEL_WORDS[word].sends:
        thing = f"what is published to a {word}".replace("to a exchange", "to an exchange")
    parameters = WRITE_PARAMETERS if word in {"client", "listener"} else SET_PARAMETERS
    return [
        Route("GET", path, Role.VIEWER, get, f"The limit of {thing}", answer=LevelLimit, views=()),
        Route("PUT", path, Role.OPERATOR, put, f"Change the limit of {thing} live", answer=LevelLimit | Preview, body=LimitBody,
              parameters=parameters, conditional=True, views=()),
        Route("PATCH", path, Role.OPERATOR, patch, f"Change parts of the live change of {thing}", answer=LevelLimit | Preview,
              body=LimitBody, parameters=parameters, conditional=True, views=()),
        Route("DELETE", path, Role.OPERATOR, delete, f"Take the live change of {thing} back", answer=LevelLimit | Preview,
              parameters=WRITE_PARAMETERS, conditional=True, views=()),
    ]  # fmt: skip


ROUTES: Final[list[Route]] = [route for operation, words in PARTS.items() for word in words for route in routes_of(operation, word)]
