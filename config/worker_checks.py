"""What several workers cannot do: refused, each with its reason and a way out. `docs/many-gateways-one-limit.md` has the table.

What each worker does with its even part of a limit is no error; `lints.py` warns of it.
"""

from __future__ import annotations

from typing import Final

from config.kinds import Reading
from config.known_settings import Fleet, Gateway, Listener
from config.rules import RuleText

# What no reload may bring to workers: what is refused with them.
REFUSED_WITH_WORKERS: Final = ("max_connection_rate", "remote_admin")

NAME_SERVER: Final = (
    "several workers cannot have a name server's listener: each would open ports of its own for the brokers",
    "set gateway.workers: 1, or let a gateway of its own have this listener",
)
REMOTE_ADMIN: Final = (
    "several workers cannot answer remote admin: only their parent changes limits",
    "use the admin API or `sluice limits set`, or set gateway.workers: 1",
)
RATE: Final = (
    "several workers cannot share a rate of new connections: each would let it through",
    "set gateway.workers: 1, or leave it out and cap how many there are: max_connections and its kin hold over all workers",
)
LAG: Final = (
    "several workers cannot follow a backlog: each would see a part of what is let through",
    "give the rule a fixed limit, or set gateway.workers: 1",
)
FLEET: Final = (
    "several workers cannot be in a fleet yet: one bucket would have two owners",
    "set gateway.workers: 1 and run more gateways with this fleet, one for each core",
)


def workers(reading: Reading) -> None:
    """Settings that workers cannot share; each worker would otherwise apply them alone."""
    if not any(isinstance(value, Gateway) and value.workers > 1 for _, value in reading.sections):
        return
    for path, value in reading.sections:
        if isinstance(value, Listener):
            if value.speaks.opens_listeners:
                reading.add_problem(f"{path}.protocol", *NAME_SERVER)
            if value.remote_admin is not None:
                reading.add_problem(f"{path}.remote_admin", *REMOTE_ADMIN)
            if value.max_connection_rate is not None:
                reading.add_problem(f"{path}.max_connection_rate", *RATE)
        elif isinstance(value, RuleText) and value.lag is not None:
            reading.add_problem(f"{path}.lag", *LAG)
        elif isinstance(value, Fleet):
            reading.add_problem(path, *FLEET)
