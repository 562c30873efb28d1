"""Completion of a key's words in the shell: of the topics that the running gateway has seen."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import click
from click.shell_completion import CompletionItem

from gateway.cli.client import AdminClient, token_for
from gateway.cli.exits import CommandError
from limiter.protocols import PROTOCOL_NAMES

PATIENCE_S = 1.0  # seconds; a shell waits for no longer
MAX_TOPICS = 500  # topics; asked for


def complete_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words that may come next: a protocol, or the next part of a topic. Nothing where no gateway answers."""
    given = [str(word) for word in context.params.get(parameter.name or "") or ()]
    if not given:
        return [CompletionItem(name) for name in PROTOCOL_NAMES if name.startswith(incomplete)]
    names = PROTOCOL_NAMES.get(given[0])
    if names is None or len(given) > len(names.topic_parts):
        return []
    found: dict[str, None] = {}
    for topic in topics(context, names.name):
        words = [unquote(word) for word in topic.split("/")] if len(names.topic_parts) > 1 else [topic]
        if len(words) == len(names.topic_parts) and words[: len(given) - 1] == given[1:] and words[len(given) - 1].startswith(incomplete):
            found[words[len(given) - 1]] = None
    return [CompletionItem(word) for word in found]


def topics(context: click.Context, protocol: str) -> list[str]:
    url = context.params.get("admin") or os.environ.get("SLUICE_ADMIN") or "http://127.0.0.1:9180"
    file = context.params.get("token_file") or os.environ.get("SLUICE_TOKEN_FILE")
    try:
        client = AdminClient(url, token_for(url, Path(file) if file else None, os.environ), PATIENCE_S)
        return [str(item.get("topic")) for item in client.items("/v1/topics", {"protocol": protocol, "sort": "rate"}, most=MAX_TOPICS)]
    except CommandError:
        return []
