"""`sluice why`: why messages of a key are refused or held, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from cli.client import AdminClient
from cli.exits import CommandError
from cli.key_completion import complete_key
from cli.keys import sender_options
from cli.names import words_of
from cli.output import clean
from cli.tables import fold
from cli.verb import Remote, Verb, remote
from cli.why_facts import MAX_NEAR, MAX_SHOWN, Findings, as_json, gather, libraries_of
from cli.why_text import commands_of, text_width, write_page
from common.failures import OK, USAGE
from common.shell_words import command, quote_word
from limiter.operations import CONSUME, PRODUCE
from limiter.protocols import DEFAULT_EXCHANGE, PROTOCOL_NAMES
from limiter.rules.level_keys import LEVEL_WORDS

WHY_EXAMPLE: Final = """\
sluice why amqp / orders order.created
sluice why rocketmq orders --library java
sluice why amqp / amq.default jobs -o json
sluice why queue / jobs"""


def topic_words(key: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a topic: of a queue those of what is published to it. Raises CommandError for what is no topic, with what would do."""
    word, *rest = key
    if word in PROTOCOL_NAMES:
        return key
    if word == "queue" and len(rest) == len(LEVEL_WORDS[word].parts):
        return ("amqp", rest[0], DEFAULT_EXCHANGE, rest[1])
    if word in LEVEL_WORDS:
        raise CommandError(USAGE, f"`why` is of a topic; what limits a {word} shows: {command('limits get', key)}")
    forms = " or ".join(names.key_words for names in PROTOCOL_NAMES.values())
    raise CommandError(
        USAGE, f"{word}: no such protocol; a topic is {forms}",
        [f"to see those that are used, as they are typed: sluice topics -q {quote_word(rest[-1] if rest else word)}"],
    )  # fmt: skip


def queue_note(key: tuple[str, ...], findings: Findings, client: AdminClient) -> Iterator[str]:
    """What to ask for beside a queue's own key: its deliveries, and the messages that other exchanges bring into it.

    Only the broker knows which keys come into a queue. Those that the virtual host's other exchanges have seen lately are named.
    """
    _, vhost, queue = key
    width = text_width()
    yield ""
    if not any(one.level.get("operation") == CONSUME for one in findings.levels):
        yield "No limit holds for its deliveries to consumers. This sets one:"
        set_one = command("limits set", key, "--messages 100/s --reason '...'")
        yield f"  {set_one}"
    bound = "What other exchanges bring into this queue is limited by their own keys. The broker knows which these are:"
    yield from fold(bound.split(" "), width)
    yield f"  rabbitmqctl list_bindings -p {quote_word(vhost)} source_name routing_key destination_name | grep -wF -e {quote_word(queue)}"
    others = other_keys(client, vhost)
    if others:
        yield from fold(f"Seen lately of the other exchanges of {vhost}, the most refused first:".split(" "), width)
        yield from (f"  {each}" for each in others)


def other_keys(client: AdminClient, vhost: str) -> list[str]:
    """`sluice why` of topics of a virtual host's other exchanges, those refused most first."""
    words = [
        words_of("amqp", str(item.get("topic")))
        for item in client.items("/v1/topics", {"protocol": "amqp", "sort": "refused"}, most=MAX_NEAR)
        if item.get("operation") == PRODUCE
    ]
    others = [each for each in words if each is not None and each[0] == vhost and each[1] != DEFAULT_EXCHANGE]
    return [command("why", ["amqp", *each]) for each in others[:MAX_SHOWN]]


@click.command(cls=Verb, example=WHY_EXAMPLE)
@click.argument(
    "key", nargs=-1, required=True, metavar=" | ".join(names.key_words for names in PROTOCOL_NAMES.values()), shell_complete=complete_key
)
@sender_options
@click.option(
    "--library", metavar="NAME", help="What this client library shows: pika, java, go ...; default: those of the clients limited."
)
@click.option("--all-libraries", is_flag=True, help="What each client library shows.")
@remote
@click.pass_context
def why(
    ctx: click.Context,
    /,
    remote: Remote,
    key: tuple[str, ...],
    library: str | None,
    all_libraries: bool,  # noqa: FBT001  -- click's way
    **sender: str | None,
) -> None:
    """Say why messages of a key are refused or held: since when, whose, by which limit set by whom, for how long, and what to do.

    A viewer's token is enough. Of a key that was never seen it shows the limit that would hold.
    """
    findings = gather(remote.client, topic_words(key), sender)
    libraries = libraries_of(findings, library, every=all_libraries)
    if remote.form == "table":
        for line in [*write_page(findings, libraries), *(queue_note(key, findings, remote.client) if key[0] == "queue" else [])]:
            click.echo(clean(line).rstrip())
    else:
        remote.emit(as_json(findings, libraries, commands_of(findings)))
    ctx.exit(OK)
