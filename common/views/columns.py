"""The columns of lists: what stands in which, for whom. Fields say their column's title, rank, unit and words; here stands the order.

Made of them: the CSV of the admin API, the tables of the command line, and those of `docs/reading-the-tables.md`. All read an item as the
API writes it, an object of JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from common.views.connections import ConnectionView
from common.views.spool import SpooledTopicView
from common.views.topics import ClientView, TopicView
from common.views.view import Fact, View, fact, facts

Item = dict[str, Any]


class Column(NamedTuple):
    """A column: its title and exact value for programs, and what a terminal shows of it."""

    title: str
    read: Callable[[Item], object]
    fact: Fact

    @property
    def title_for_people(self) -> str:
        return self.fact.short or self.title


def member(item: Item, path: str) -> Any:
    """`a.b` is the member b of a; None where it has none."""
    value: Any = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def first_member(*paths: str) -> Callable[[Item], object]:
    """Reads the first of these members that exists."""
    return lambda item: next((value for path in paths if (value := member(item, path)) is not None), None)


def column(kind: type[View], *paths: str) -> Column:
    """The column of a field, and of others of the same meaning where it is null."""
    name, _, rest = paths[0].partition(".")
    inner = [each for each in types_of(kind, name) if isinstance(each, type) and issubclass(each, View)] if rest else []
    if inner:
        return column(inner[0], rest)._replace(read=first_member(*paths))
    found = facts(kind)[name]
    return Column(found.title or name, first_member(*paths), found)


def types_of(kind: type[View], name: str) -> tuple[Any, ...]:
    """The types that a field may have."""
    hint = get_type_hints(kind)[name]
    return get_args(hint) or (hint,)


def columns(kind: type[View], paths: str) -> tuple[Column, ...]:
    """Columns in their order: paths, and behind a `|` what is read where the first is null."""
    return tuple(column(kind, *each.split("|")) for each in paths.split())


def computed(title: str, read: Callable[[Item], object], meta: Any) -> Column:
    """A column that is no field's. `meta`: what `fact()` makes."""
    return Column(title, read, meta.extra["fact"])


def culprits(item: Item) -> str | None:
    """The clients refused now, each with its messages per second; if none is, those refused before, with their messages."""
    known = [client for client in item.get("clients") or [] if isinstance(client, dict)]
    texts = [f"{client['client']} {client['refused_per_second']:.0f}/s" for client in known if client.get("refused_per_second")]
    return ", ".join(texts or [f"{client.get('client')} {client.get('refused')}" for client in known]) or None


def texts_of(item: Item) -> str | None:
    """The names that a client gives its connections."""
    return ", ".join(str(name) for name in item.get("names") or []) or None


def libraries_of(item: Item) -> str | None:
    """What the client says of itself, as it says it."""
    known = item.get("libraries") or []
    said = [" ".join(str(each[name]) for name in ("product", "language", "version") if each.get(name)) for each in known]
    return ", ".join(each for each in said if each) or None


WORST: Final = computed(
    "refused most",
    culprits,
    fact(
        "the client refused most now, with its refused messages a second. In a pipe the three worst; if none is refused now, those refused "
        "before",
        short="worst client",
        rank=10,
    ),
)
NAMES: Final = computed("name", texts_of, fact("AMQP: the connection names, up to three", rank=7))
LIBRARIES: Final = computed(
    "library",
    libraries_of,
    fact(
        "what the client says of itself: AMQP's client-properties, or the language of RocketMQ's requests. Up to three different ones",
        rank=5,
    ),
)
TOPICS: Final = (
    *columns(
        TopicView,
        "protocol topic operation received_per_second forwarded_per_second refused_per_second bytes_per_second received forwarded refused "
        "dropped abandoned waiting limit.messages limit.mode redelivered shadow_refused limit.bytes used wait_ms wait_p99_ms limit.origin "
        "group",
    ),
    WORST,
)
CLIENTS: Final = (
    *columns(ClientView, "client user"),
    NAMES,
    LIBRARIES,
    *columns(ClientView, "refused_per_second delayed_per_second topic refused delayed idle_seconds listener protocol operation"),
)
CONNECTIONS: Final = columns(
    ConnectionView,
    "id listener client client_properties.connection_name user vhost state bottleneck held_by.rule|refused_by.rule "
    "held_by.topic|refused_by.topic messages_forwarded refused_per_second messages_refused held_messages held_bytes spooled_bytes "
    "credit.spool.stage credit.reader.blocked_seconds broker_blocked_seconds send_blocked_seconds age_seconds messages_delivered "
    "backlog_to_client unread_seconds client_gone_seconds",
)
SPOOL: Final = columns(SpooledTopicView, "protocol topic messages bytes disk_messages disk_bytes waiting_seconds")
