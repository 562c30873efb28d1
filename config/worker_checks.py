"""What several workers cannot do: refused, each with its reason and a way out. `docs/many-gateways-one-limit.md` has the table.

What each worker does with its even part of a limit is no error; `lints.py` warns of it.
"""

from __future__ import annotations

from typing import Final

from config.kinds import Reading
from config.known_settings import GatewaySettings, ListenerSettings

NAME_SERVER: Final = (
    "several workers cannot have a name server's listener: each would open ports of its own for the brokers",
    "set gateway.workers: 1, or let a gateway of its own have this listener",
)

MAX_TOPICS_OF_WORKERS: Final = 10_000  # topics; a worker describes all of its topics to the parent each second: 100 ms
MANY_TOPICS: Final = (
    f"several workers cannot tell more than {MAX_TOPICS_OF_WORKERS:,} topics apart: each describes all of its topics once a second",
    f"set gateway.workers: 1, or gateway.max_topics: {MAX_TOPICS_OF_WORKERS}",
)


def check_workers(reading: Reading) -> None:
    """Settings that workers cannot share; each worker would otherwise apply them alone."""
    if not any(isinstance(value, GatewaySettings) and value.workers > 1 for _, value in reading.sections):
        return
    for path, value in reading.sections:
        if isinstance(value, GatewaySettings) and value.max_topics > MAX_TOPICS_OF_WORKERS:
            reading.add_problem(f"{path}.max_topics", *MANY_TOPICS)
        if isinstance(value, ListenerSettings) and value.speaks.opens_listeners:
            reading.add_problem(f"{path}.protocol", *NAME_SERVER)
