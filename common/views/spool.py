"""What waits in the gateway because a rule says `action: spool`. `GET /v1/spool`."""

from typing import Annotated

from common.views.view import View, add, fact, most


class SpoolView(View, frozen=True, kw_only=True):
    """The spool as a whole; what is counted, since the start."""

    directory: Annotated[str, fact("of its files")] = ""
    size_bytes: Annotated[int, fact("that its files may take", add, "bytes")] = 0
    used_bytes: Annotated[int, fact("that its files take", add, "bytes")] = 0
    messages: Annotated[int, fact("that wait, in memory and on disk", add, "messages")] = 0
    disk_messages: Annotated[int, fact("of these, those on disk", add, "messages")] = 0
    topics: Annotated[int, fact("that wait", add, "topics")] = 0
    written_bytes: Annotated[int, fact("since the start", add, "bytes")] = 0
    read_bytes: Annotated[int, fact("since the start", add, "bytes")] = 0
    damaged_batches: Annotated[int, fact("that could not be read back", add)] = 0
    expired: Annotated[int, fact("given up for their age", add, "messages")] = 0
    full: Annotated[bool, fact("whether a client waits for room", most)] = False
    trouble: Annotated[str | None, fact("why nothing can be written just now")] = None


class SpooledTopicView(View, frozen=True, kw_only=True):
    """A topic whose messages wait in the spool."""

    protocol: Annotated[str, fact("rocketmq or amqp", rank=30)]
    topic: Annotated[str, fact("its name", rank=0)]
    messages: Annotated[
        int,
        fact(
            "that wait, in memory and on disk. The broker has none of them, and no publisher has an answer for them",
            add,
            "messages",
            rank=1,
        ),
    ] = 0
    bytes: Annotated[
        int, fact("of these publishes; files are somewhat larger, and are deleted when all in them has left", add, "bytes", rank=2)
    ] = 0
    disk_messages: Annotated[
        int, fact("of these, those of which nothing is in memory", add, "messages", title="disk messages", short="on disk", rank=4)
    ] = 0
    disk_bytes: Annotated[int, fact("of the publishes on disk", add, "bytes", title="disk bytes", rank=5)] = 0
    waiting_seconds: Annotated[
        float, fact("how long something of the topic has waited without an end", most, "seconds", title="waiting s", short="for", rank=3)
    ] = 0.0

    def key(self) -> object:
        return self.protocol, self.topic
