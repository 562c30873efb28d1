"""`sluice clients`: who is refused or held, over all topics."""

from __future__ import annotations

from typing import Any, Final

import click

from cli.client_advice import library_of
from cli.listing import limit_option, sort_option, watchable
from cli.names import topic_of
from cli.tables import Special, choose_columns
from cli.verb import Remote, Verb, optional_list_word, remote
from common import figures
from common.views import columns

CLIENTS_EXAMPLE: Final = """\
sluice clients
sluice clients --sort total --limit 10 --watch
sluice clients -q 10.0.0.7 -o json"""


def library_text(item: dict[str, Any]) -> str | None:
    """The client libraries behind one client, by the names people call them: `pika 1.4.4`; None where it has said nothing."""
    found = [_library(item.get("protocol"), each) for each in item.get("libraries") or []]
    return ", ".join(each for each in found if each) or None


def _library(protocol: object, said: dict[str, Any]) -> str:
    """`said`: product, version and platform of AMQP's client-properties, or language and version of RocketMQ's requests."""
    known = library_of({"protocol": protocol, "client_properties": said, **said})
    if "language" in said:
        return known.name if known is not None else str(said["language"])
    name = known.name if known is not None else str(said.get("product") or said.get("platform") or "")
    return f"{name} {said.get('version') or ''}".strip()


CLIENTS: Final = choose_columns(
    columns.CLIENTS,
    {
        "library": Special(read=library_text),
        "topic": Special(topic_of),
        "idle s": Special(lambda item: f"{figures.duration(item.get('idle_seconds') or 0)} ago"),
    },
)


@click.command(cls=Verb, example=CLIENTS_EXAMPLE)
@click.option("-q", "--query", metavar="TEXT", help="Only clients whose address, user, name, library, listener or topic contains TEXT.")
@sort_option(
    ["refused", "held", "total", "name"], "refused", "Order; refused and held: most per second now first, total: most refused first."
)
@limit_option(20)
@optional_list_word
@watchable
@remote
def clients(remote: Remote, query: str | None, sort: str, most: int) -> None:
    """List the clients that limits refuse or hold, over all topics, the worst first.

    One line is one address and user at one listener. Refused (or dropped) and held: messages per second, means over 10 s, and in all since
    the client is listed. Worst topic: the one of which that is most. Library: what the client says of itself. A client that has gone, or is
    within its limits again, stays for 10 minutes. At most 500 are kept. `sluice why` says more of one topic.
    """
    empty = f"no client that is over a limit has {query} in it" if query else "no client was over a limit in the last 10 minutes"
    found = remote.client.items("/v1/clients", {"q": query or "", "sort": sort}, most=most)
    remote.emit(list(found), CLIENTS, empty=empty)
