"""A rule whose match is a whole name, where part of a name was probably meant: `--match topic=order` beside topics orders and order.eu.

It is no error, for the topic may come later. So the rule is added, and whoever adds it is told what it does not match, and how to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.cli.client import AdminClient
from gateway.cli.names import words_of
from limiter.shell_words import quoted

MATCHED_WHOLE: Final = ("topic", "routing_key", "queue")  # fields of a match whose pattern is one of a whole name
PATTERN: Final = "*?#["  # letters that make one
MAX_TOPICS: Final = 500  # looked at
MAX_SHOWN: Final = 3


def literal_note(client: AdminClient, match: Mapping[str, str], *, dry_run: bool) -> str | None:
    """What to say of a match without a pattern whose name has not come, while others that begin with it have; None: nothing."""
    for field in MATCHED_WHOLE:
        name = match.get(field, "")
        if not name or any(letter in name for letter in PATTERN):
            continue
        items = client.items("/v1/topics", {"q": name, **({"protocol": match["protocol"]} if "protocol" in match else {})}, most=MAX_TOPICS)
        words = (words_of(str(item.get("protocol")), str(item.get("topic"))) for item in items)
        seen = {each[-1] for each in words if each is not None}
        begins, pattern = (f"{name}.", f"{name}.#") if field == "routing_key" else (name, f"{name}*")
        longer = sorted(each for each in seen if each.startswith(begins))
        if name in seen or not longer:
            continue
        some = ", ".join(longer[:MAX_SHOWN]) + (f" and {len(longer) - MAX_SHOWN} more" if len(longer) > MAX_SHOWN else "")
        return (
            f"{field}={name} is a whole name, of which no message has come. It does not match {some}; "
            f"for these, too: --match {field}={quoted(pattern)}{'' if dry_run else ' --replace'}"
        )
    return None
