"""Limits that are over now: in the page's snapshot, and in alerts."""

from typing import Annotated, Self

from msgspec.structs import replace

from common.views.view import View, add, add_counts, fact, least


class OverLimitView(View, frozen=True, kw_only=True):
    """One limit that has been reached (`limit_reached`) and has not recovered; over several processes, their parts of it."""

    per: str
    thing: Annotated[str, fact("that has the limit to itself; nothing: all that have none of their own")]
    rule: str
    operation: Annotated[str, fact("that the worst client was over it with")] = "produce"
    operations: Annotated[str, fact("where its rule is for several, these: they have one limit together")] = ""
    place: Annotated[str, fact("where its rule stands")] = ""
    origin: Annotated[str, fact("its source")] = ""
    limit: Annotated[str, fact("as people write it")] = ""
    since: Annotated[float, fact("seconds since 1970", least)] = 0.0
    bouts_since: Annotated[
        float, fact("seconds since 1970: when the first bout began of those that followed each other within a minute", least)
    ] = 0.0
    rate: Annotated[int, fact("offered, over the last second or so", add, "messages/s")] = 0
    refused: Annotated[int, fact("since it was reached", add, "messages")] = 0
    delayed: Annotated[int, fact("since it was reached", add, "messages")] = 0
    protocol: str = ""
    topic: Annotated[str, fact("of the worst client's last message over the limit")] = ""
    listener: Annotated[str, fact("of the worst client")] = ""
    client: Annotated[str, fact("the worst one's address")] = ""
    user: str = ""
    group: str = ""
    client_refused: Annotated[int, fact("of the worst client, since the log's line before, up to 60 s", unit="messages")] = 0
    clients: Annotated[int, fact("that were over it; of several processes at most, as each counts its own", add)] = 0
    waiting: Annotated[int | None, fact("of a topic: messages that wait now", add, "messages")] = None
    client_over: Annotated[
        dict[str, int], fact("by address: messages over it of each process's worst client, since the log's line before", add_counts)
    ] = {}
    over: Annotated[int, fact("that were over it in that time, of all clients", add, "messages")] = 0
    client_share: Annotated[float, fact("of all that was over it, what the worst client makes", unit="share")] = 1.0

    def key(self) -> tuple[str, str, str, str, str]:
        protocol = self.protocol if self.per == "topic" and self.thing else ""
        return self.per, self.thing, self.rule, self.operations or self.operation, protocol

    def weight(self) -> int:
        """The worst client is that of the process in which it was over the limit more, refused or held."""
        return self.client_over.get(self.client, 0)

    def settled(self) -> Self:
        """A client's connections may be in several processes, each of which counts it: who makes all of it is the only one."""
        if not self.over:
            return self
        weight = self.weight()
        return replace(self, client_share=round(weight / self.over, 4), clients=1 if weight >= self.over else self.clients)
