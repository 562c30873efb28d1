"""A conversation: one client talking with its broker, in one protocol. What every protocol must know how to do.

A conversation is sans-IO: bytes come in as arguments, bytes go out as results. It holds no socket, no clock (`now` is an argument,
monotonic nanoseconds) and no limiter. `assemble` creates it when a client connects; tests create it without a loop.

The life of a request (the handlers in `gateway/pipeline/handlers/` call these in this order)::

    client's bytes ── decode ──► parts ──► (judge) ──► admit / refuse / drop ──► outbox ──► broker
                                                            │  what waits: `lines`
    client ◄── relay (+ take_replies at frame boundaries) ◄─┴──────────────── broker's bytes ◄──── broker

A protocol writes eight methods: `decode`, `admit`, `split`, `refuse`, `close`, `drop`, `relay` and `take_replies`. Every other method has a
default and belongs to something the protocol may be able to do; each section below names it. What waits for a limit is in `lines`
(`gateway/waiting/lines.py`). Beside its results a conversation speaks through two records: `budget` says how much it holds and when
something of it is due, `reports` what has happened.

May be assumed: `decode` is called again only after every part of the call before it was settled (admitted, refused, held or dropped),
because a session has at most one batch with the judge. `relay` may be called at any time in between.

Must not be assumed: that a read ends at a frame, that a frame ends in the read it began in, that a refused request was complete.

`docs/writing-a-protocol.md` has the whole contract.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import Part
from gateway.pipeline.reports import Reports
from gateway.waiting.lines import Lines
from limiter.limits import NEVER

REFUSED: Final = 0  # the client has been told (or will be, when the request's last byte is in)
DROPPED: Final = 1  # no answer is possible or wanted (a one-way request): nothing was said
UNABLE: Final = 2  # refusing here would be silence or break the protocol's promises: the rule's fallback says what happens instead
LATER: Final = 3  # something before it, with the same ordering key, is held: hold it behind that, and ask again


class Conversation:
    """One client, one broker. Subclassed once per protocol; see the module's docstring for the order of calls."""

    def __init__(self, context: ConversationContext) -> None:
        # What every turn looks at comes first, see `Session`.
        self.budget = HeldBudget()  # what counts against this connection: written here, read by the session
        self.reports = Reports()  # what there is to report: written here, emptied by the session
        self.lines = Lines(context, self.budget, self.reports)  # what waits; a protocol that can hold something has its own
        self.draining = False  # the close was sent: what the client still sends is not decoded
        self.memory_starved = False  # set by the session: the client is not read because the gateway as a whole is short of memory
        self.handshake_done = False  # or the first whole request is in: handshake_timeout does not hold any more
        self.has_close_frames = True  # the protocol can say that the connection ends; where it cannot, `graceful_close.py` ends it
        self.rejects_requests = False  # new requests are answered with the word to repeat them on another connection
        self.postpones_decoding = False  # what is not decoded waits for the broker's word, not for bytes; then `budget.blocking` counts it
        self.outbox: list[Part] = []  # what goes to the broker, in order; the Forward handler empties it
        self.knows_answers = False  # `settled` is exact; where it is not, draining waits for a quiet broker instead
        self.answers_all = True  # the broker answers all that `settled` waits for; where it may not, a silent one has answered what it will
        self.heartbeat_ns = NEVER  # how long either side may hear nothing before a heartbeat is due; NEVER: none were agreed on
        self.need = 1  # bytes that must be there from the first undecoded one before `decode` can get further
        self.user: str | None = None  # as authenticated, once known
        self.context = context
        self.pending_gateway_requests = 0  # of `Reports.gateway_requests`, those not answered yet
        self.leaves = False  # the client has said that it closes the connection
        self.asks_broker = False  # the client is gone, and nothing that goes on for it is answered: `heartbeat` is a question
        self.client_gone = False  # its end has been read: it says nothing more; its session tells
        self.close_said = False  # the broker has been told that the connection ends, by the client or by `last_words`
        self.awaits_close_ok = False  # it was told so, and has not said yet that it has handled all before that
        self.rejection_reason = ""  # why the client cannot stay, while it is still being told so (`continue_rejection`)
        self.rejected_after_drain = 0  # requests that came after `begin_graceful_close` and were not forwarded

    # ---- what a protocol does: client to broker --------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        """Split `data[start:]` into parts, appended to `parts` in order; at most about `room` messages.

        Returns the index of the first byte not decoded (an incomplete frame, or what had no room). The caller calls again with those
        bytes first, and not before `need` bytes are there. Raises ProtocolError.
        """
        raise NotImplementedError

    def settle_rows(self, part: Part) -> bool:
        """Admit what passes of `part`, which is of several keys, and `refuse` the rest, as its columns say (`Columns.fates`).

        False, changing nothing, where its pieces must be settled for themselves.
        """
        return False

    def admit(self, part: Part) -> None:
        """Let `part` go on: append it to `outbox`, unless its ordering key is held (then it waits) or it continues a refused one."""
        raise NotImplementedError

    def split(self, part: Part, count: int) -> Part:
        """Cut the first `count` requests off `part` (0 < count < part.count) and return them as a part; `part` keeps the rest."""
        raise NotImplementedError

    def refuse(self, part: Part) -> int:
        """Tell the client natively that all requests of `part` were refused (`part.rule`, `part.wait_ns`): REFUSED, DROPPED, UNABLE, LATER.

        UNABLE and LATER change nothing. The rest of an incomplete last request is discarded when it comes. Where `part.unfit` is set no
        wait would help: the client is told as by the broker, and it is never UNABLE.
        """
        raise NotImplementedError

    def close(self, part: Part) -> int:
        """Refuse `part` by closing what it came on (AMQP: its channel, RocketMQ: the connection): REFUSED, LATER, changing nothing, or
        DROPPED where it is closed already.

        What comes behind it there is given up (`Reports.give_up`).
        """
        raise NotImplementedError

    def drop(self, part: Part) -> bool:
        """Swallow `part` without a word. False, changing nothing, where the client was promised an answer."""
        raise NotImplementedError

    # ---- what a protocol does: broker to client --------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        """Take the broker's bytes and append to `out` what goes to the client, replies of the gateway's own included, in order.

        Keeps incomplete frames it has to see whole; passes everything else at once. Raises ProtocolError(whose="broker"). While `draining`
        it is called only for what `awaits_close_ok` waits for, and nothing goes to the client.
        """
        raise NotImplementedError

    def take_replies(self) -> bytes:
        """The gateway's own replies waiting for the client, if the broker's stream stands at a frame boundary; else b""."""
        raise NotImplementedError

    def broker_unfinished(self) -> int:
        """Bytes kept of a frame of the broker's that has to be seen whole and is not."""
        return 0

    # ---- a protocol that asks the judge for keys -------------------------------------------------------------------

    def renew_keys(self) -> None:
        """Other rules are in force, by which origins or keys may be others (`Judge.replace`): ask the judge for them again."""

    def end(self) -> None:
        """The connection is over; give back what was taken from the judge, and let go of what refers back to the conversation.

        What is left in a circle is only freed by the garbage collector, which looks at what is old once in some millions of objects.
        """
        self.lines.forward = None

    # ---- a protocol whose requests hold slots in flight (`limiter/in_flight.py`) -----------------------------------

    def needs_ticks(self) -> bool:
        """Whether `tick` may still have something to do, with nothing said by either side."""
        return False

    def release_all_slots(self) -> None:
        """The connection is over: end all flights that are kept here."""

    # ---- a protocol whose deliveries or polls are limited ----------------------------------------------------------

    def ask(self, now: int) -> list[Part]:
        """Deliveries that need a verdict now, or reservations to be settled. The broker is not read until `deliver`, with the verdicts."""
        return []

    def deliver(self, now: int) -> None:
        """Settle what `ask` returned by its verdicts; what passes goes to the client with the next `relay` or `take_replies`."""

    def is_polling(self) -> bool:
        """Whether the client waits for messages it has asked for, with time."""
        return False

    def keeps_forgotten(self) -> bool:
        """Whether something waits for the client here that its broker does not have any more: lost, if the connection ends now."""
        return False

    def take_forgotten(self) -> bytes:
        """What waits here and the broker does not have any more, for the client, before a close; the rest of what waits is given up."""
        return b""

    # ---- a protocol whose messages carry a trace context -----------------------------------------------------------

    def traceparents(self, part: Part, most: int) -> list[bytes]:
        """The `traceparent` of the first `most` requests of `part`, which was refused or is held: as it was found, b"" where there is
        none. They are in order; those missing at the end have none."""
        return []

    # ---- a protocol with requests to the gateway itself ------------------------------------------------------------

    def answer(self, frames: bytes) -> None:
        """A gateway request is done: `frames`, whole ones of the gateway's own or none, leave with the next `relay` or `take_replies`."""
        raise NotImplementedError

    # ---- a protocol with heartbeats, or with notices to clients ----------------------------------------------------

    def heartbeat(self) -> bytes:
        """A heartbeat for the broker, or b"" where the protocol has none or the bytes sent so far end within a frame.

        Where `heartbeat_ns` is NEVER: what keeps the broker from closing a connection whose client is not read.
        """
        return b""

    def heartbeat_to_client(self) -> bytes:
        """A heartbeat for the client, or b"" where the protocol has none or what the client got so far ends within a frame."""
        return b""

    def tick(self, now: int) -> bool:
        """A few times a second: whether there is now something to say to the client that is not said as often as it changes.

        Ends the flights of requests that will hardly be answered any more.
        """
        return False

    # ---- the end ---------------------------------------------------------------------------------------------------

    def abandon(self) -> list[Part]:
        """Give up everything held (the client is gone): the parts, so that they can be counted."""
        return self.lines.forget_all()

    def leave(self) -> None:
        """The client is gone, or has said that it closes: nothing more is consumed for it while its messages wait. Called as often as that
        is seen."""

    def has_farewells(self) -> bool:
        """Whether the broker may have to be told that a client, or a channel of it, consumes no more while its messages wait."""
        return False

    def take_farewells(self, *, quiet: bool) -> bytes:
        """What the broker is told of that now, ahead of all that waits; b"" for nothing, or where its stream is within a frame.

        `quiet`: all that the client has said is decoded as far as it will be soon, and nothing of it is with the judge.
        """
        return b""

    def is_stuck(self) -> bool:
        """The client is gone: whether something is half at the broker whose end will never come, and what waits cannot go on for it."""
        return self.budget.frame_left > 0

    def last_frames(self, error: ProtocolError) -> bytes:
        """What a client that broke the protocol is told before its end; b"" where it has half a frame of the broker's."""
        return error.last_frames

    def last_words(self, reason: str) -> bytes:
        """What tells the broker that its connection ends, behind all that was forwarded; b"": a FIN has to do. See `close_said`."""
        return b""

    def settled(self) -> bool:
        """Whether the client waits for no answer to what was forwarded, as far as the protocol can tell (used for draining)."""
        return True

    def close_client(self, reason: str) -> bytes:
        """What tells the client that the gateway closes its connection; b"" where nothing can be said."""
        return b""

    def tell_broker_lost(self, reason: str) -> bytes:
        """What the client of a broker that went away without a word is told; b"" where nothing can be said, or both knew."""
        return b""

    def continue_rejection(self, data: bytes) -> bytes:
        """What to answer to a client that is being told why it cannot stay. `rejection_reason` is empty when all is said."""
        return b""

    def begin_graceful_close(self) -> None:
        """The gateway will close this connection, and no word says so in this protocol: reject new requests where clients understand it."""

    def end_graceful_close(self) -> bytes:
        """The last frames for the client. What it asks from here on is dropped; what wants no answer goes on to the broker."""
        return b""

    # ---- for operators ---------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Fields of `ConnectionView` that the protocol alone knows (vhost, client properties, ...)."""
        return {}
