"""Heartbeats on both hops of one connection: which side must hear something, and which has been silent for too long.

Each peer agreed on heartbeats with the other, not with the gateway. While bytes pass freely nothing is needed: their own heartbeats pass
with the rest. But the gateway keeps bytes back: it does not read a client that is throttled, swallows publishes it refuses, does not read a
broker whose client is slow. The naive proxy lets the other side take that silence for death (amqproxy #210: eight client libraries
died after 6 s of a hold with a heartbeat of 2 s, `docs/design/amqp.md` 1.5). So on each hop the gateway sends heartbeats for the other
peer:

* To the broker, after half the agreed time without a byte sent: if the client has been heard since, or is not being read, or something of
  it is held. A client that is read and sends nothing gets no heartbeat from the gateway: its silence is passed on.
* To the client, after half the agreed time (and a little, for the broker's own heartbeat to come first): always, also while the broker is
  silent. Whether the broker lives is judged here, and the client is then told in the protocol (`docs/design/reliability.md` F21).

A peer is dead after twice the agreed time without a byte, counted only while it was being read, and only while this process ran. Any byte
counts, a part of a frame too. Heartbeats go in at frame boundaries only, which the conversation knows. Where a stream stands in the middle
of a frame, they wait for the rest of it.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.conversation import Conversation
from gateway.transport.channel import Channel
from limiter.limits import NEVER

ALIVE: Final = 0
CLIENT_SILENT: Final = 1
BROKER_SILENT: Final = 2

LATE_NS: Final = 500_000_000  # that a peer's heartbeat may be late before anything is done about it: two ticks
UNREAD_NS: Final = 30_000_000_000  # after so long the broker is told something for a client that is not read; as often as clients do
# Between two ticks; longer means that this process stood still (SIGSTOP, a paused machine), not that a peer was silent
PAUSE_NS: Final = 1_000_000_000


class Heartbeats:
    """The two hops of one connection. `tick` is called a few times a second with monotonic ns."""

    __slots__ = (
        "client", "client_beat_at", "client_heard_at", "conversation", "ticked_at", "upstream", "upstream_beat_at", "upstream_heard_at",
    )  # fmt: skip

    def __init__(self, conversation: Conversation, client: Channel, upstream: Channel) -> None:
        self.conversation = conversation
        self.client = client
        self.upstream = upstream
        self.client_beat_at = 0  # when the gateway last sent the client a heartbeat
        self.upstream_beat_at = 0
        self.client_heard_at = 0  # the client's silence counts from here
        self.upstream_heard_at = 0
        self.ticked_at = 0

    def tick(self, now: int, *, reads_client: bool, reads_broker: bool) -> int:
        """Send the heartbeats that are due; ALIVE, or which side is dead. `reads_…`: whether that side's bytes are read as they come."""
        interval = self.conversation.heartbeat_ns
        if interval >= NEVER:
            if not reads_client:
                self._keep_alive(now)
            return ALIVE
        self._update_silence(now, reads_client=reads_client, reads_broker=reads_broker)
        self._send_due(now, interval, reads_client=reads_client)
        patience = 4 * interval + LATE_NS
        if now - self.client_heard_at >= patience:
            return CLIENT_SILENT
        return BROKER_SILENT if now - self.upstream_heard_at >= patience else ALIVE

    def due(self) -> int:
        """When `tick` has something to do next, in monotonic ns, as long as nothing is heard, sent or held; NEVER without heartbeats."""
        interval = self.conversation.heartbeat_ns
        if interval >= NEVER:
            return NEVER
        silent_at = min(self.client_heard_at, self.upstream_heard_at) + 4 * interval + LATE_NS
        due = min(max(self.client.sent_at + LATE_NS, self.client_beat_at) + interval, silent_at)
        if self.conversation.asks_broker:
            return min(due, max(self.upstream.received_at, self.upstream_beat_at) + interval)
        last_sent_at = max(self.upstream.sent_at, self.upstream_beat_at)
        return min(due, last_sent_at + interval) if self.client.received_at > last_sent_at else due  # a client's silence is passed on

    def listen_from(self, now: int) -> None:
        """The broker's silence counts from here on, and the gateway's own: heartbeats may not have been agreed on before."""
        self.upstream_heard_at = self.upstream_beat_at = now

    def excuse(self, asleep: int, now: int) -> None:
        """This process stood still for `asleep` ns up to `now`: no one was silent meanwhile."""
        self.client_heard_at = min(max(self.client_heard_at, self.client.received_at) + asleep, now)
        self.upstream_heard_at = min(max(self.upstream_heard_at, self.upstream.received_at) + asleep, now)

    def _update_silence(self, now: int, *, reads_client: bool, reads_broker: bool) -> None:
        """Move on from when each side's silence counts."""
        self.ticked_at = now
        client = self.client
        upstream = self.upstream
        self.client_heard_at = max(self.client_heard_at, client.received_at)
        self.upstream_heard_at = max(self.upstream_heard_at, upstream.received_at)
        if not reads_client or client.readable:  # what it has said may lie unread
            self.client_heard_at = now
        if not reads_broker or upstream.readable:
            self.upstream_heard_at = now
        if self.conversation.asks_broker and upstream.backlog > 0:  # it takes what it gets, and has not come to the question
            self.upstream_heard_at = max(self.upstream_heard_at, upstream.sent_at)

    def _send_due(self, now: int, interval: int, *, reads_client: bool) -> None:
        conversation = self.conversation
        upstream = self.upstream
        asks = conversation.asks_broker  # then what is sent gets no answer, and the broker has to be asked whether it lives
        last_sent_at = max(upstream.received_at if asks else upstream.sent_at, self.upstream_beat_at)
        if (asks or upstream.backlog == 0) and now - last_sent_at >= interval:  # a question may stand behind whole frames
            for_client = asks or not reads_client or conversation.budget.held_bytes > 0 or self.client.received_at > last_sent_at
            if for_client and self._beat(upstream, conversation.heartbeat(), now):
                self.upstream_beat_at = now
        client = self.client
        last_sent_at = max(client.sent_at + LATE_NS, self.client_beat_at)
        if client.backlog == 0 and now - last_sent_at >= interval and self._beat(client, conversation.heartbeat_to_client(), now):
            self.client_beat_at = now

    def _keep_alive(self, now: int) -> None:
        upstream = self.upstream
        quiet = upstream.backlog == 0 and now - max(upstream.sent_at, self.upstream_beat_at) >= UNREAD_NS
        if quiet and self._beat(upstream, self.conversation.heartbeat(), now):
            self.upstream_beat_at = now

    def _beat(self, channel: Channel, beat: bytes, now: int) -> bool:
        if not beat:
            return False
        moved_at = channel.sent_at
        channel.queue(beat, 0, len(beat))
        channel.flush(now)
        channel.sent_at = moved_at  # a heartbeat is no progress
        return True

    def client_silence_ns(self, now: int) -> int:
        return now - self.client_heard_at

    def broker_silence_ns(self, now: int) -> int:
        return now - self.upstream_heard_at

    def __repr__(self) -> str:
        now = self.ticked_at
        return f"<Heartbeats client silent {self.client_silence_ns(now)} ns, broker {self.broker_silence_ns(now)} ns>"
