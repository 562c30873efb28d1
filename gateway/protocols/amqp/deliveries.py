"""Deliveries that wait: what a rule with `operation: consume` keeps from the client for a while.

The naive way to slow a consumer down, reading the broker more slowly, stops everything else the broker has to say on that connection:
confirms, other channels, heartbeats. So deliveries of queues with such a rule are cut out of the stream, run by run of like ones, and
parked at their channel until the judge lets them pass; none is ever dropped for a limit. Where no rule looks at a queue, its deliveries
are only counted, and pass as they come.

Order. Behind a parked delivery its channel keeps its order: other deliveries (with their verdict, `paid`), consume-ok, cancel-ok, get-empty
and whatever else the broker says on that channel. Only confirms and returned messages overtake, which belong to the client's publishing
half, and the broker's channel.close. Other channels and channel 0 do not notice. Where somebody waits on a channel, the client's stream is
never within a message on it: a delivery leaves as a whole, or begins to leave and flows on, its end being what the broker sends next.

Memory. A delivery is judged at its content header; while it waits, its body is collected as it comes. When as much is parked as the
connection may hold, the broker is not read (`Session.reads_broker`), so a delivery larger than that is collected in part; when its turn
comes the part leaves and the rest flows.

Ends. What is parked for a channel the broker has closed is worth nothing, because the broker delivers it again: it is given up. But what
was consumed without acknowledgement the broker has forgotten: that passes, over the limit, before the close. What a client has closed
itself (the channel, the connection) it does not want any more: nothing of it passes, in either case. A consumer that the client cancels
gets what is on its way for it at once, over the limit: libraries wait for cancel-ok, which comes behind it, before they close a channel.

Writes `parked_bytes`, `parked_messages` and `ask_due` of the conversation, which the session goes by; reports on `delivered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.actions.wait import due
from gateway.messages import BODY, NEVER, PLAIN, REQUEST, Delivered, Part
from gateway.protocols.amqp.amqp_channel import AmqpChannel, weight
from gateway.protocols.amqp.consumers import Consumer, Consumers
from gateway.protocols.amqp.frames import BASIC_CANCEL, CHANNEL_CLOSE
from gateway.protocols.amqp.parking import Parcel, Parking, extends, refuse, remark, within_message
from gateway.protocols.amqp.refusal import publish_end

if TYPE_CHECKING:
    from gateway.conversation import Conversation
    from limiter.keys import Key

DELIVERIES_ASKED: Final = 512  # judged in one go, per connection; as many as Decode's REQUESTS_PER_TURN


class Deliveries:
    """All deliveries of one connection: counted, and parked where a rule says so."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.judge = conversation.circumstances.judge
        self.consumers = Consumers(self.judge)
        self.parked: dict[int, AmqpChannel] = {}  # channels with a parking
        self.free: dict[int, AmqpChannel] = {}  # those whose first parcels may leave at the next frame boundary
        self.loose: list[bytes] = []  # methods of channels given up, which still go to the client
        self.asked: dict[int, list[Part]] = {}  # with the judge, by channel
        self.asking = False
        self.over = False  # the connection is being closed: nobody wants any more of them
        self.reads = 0  # number of the read that is looked at; where two frames touch, they are of the same
        self.frame_left = 0  # bytes of a body frame that is being collected (or swallowed), its end octet included
        self.frame_lane = 0

    # ---- as the broker sends them ----------------------------------------------------------------------------------

    def begin(self, channel: AmqpChannel, method: int, data: bytes, pos: int, stop: int) -> bool:
        """basic.deliver or basic.get-ok, whole at `data[pos:stop]`; True where it is taken out of the stream."""
        consumer = self.consumers.delivered(method, channel.number, data[pos + 11 : stop - 1])
        channel.down_left = -1
        parking = channel.parking
        if parking is None:
            channel.consumer = consumer
            if consumer is None or not self._limits(consumer):
                return False
            channel.consumer = None
            parking = channel.parking = Parking()
            self.parked[channel.number] = channel
        self._flush_method(channel, parking)
        parking.passing = False
        parking.swallows = consumer is not None and (self.over or not channel.opened)
        parking.consumer = consumer
        parking.method = data[pos:stop]
        parking.method_end = stop
        parking.read = self.reads
        return True

    def header(self, channel: AmqpChannel, data: bytes, pos: int, stop: int, size: int) -> bool:
        """A content header, whole at `data[pos:stop]`, of a body of `size` bytes; True where it is taken out of the stream."""
        parking = channel.parking
        if parking is None:
            consumer = channel.consumer
            if consumer is not None:
                channel.consumer = None
                self._count(consumer.key, 1, 1, size)
            return False
        if parking.passing:
            return False
        consumer = parking.consumer
        method = parking.method
        parking.consumer = None
        parking.method = b""
        if parking.swallows:
            if consumer is not None:
                self._give_up(Part(REQUEST, channel.number, b"", 0, 0, consumer.key, 1, 1, size), counted=False)
            self._leave_if_empty(channel, parking, within=size > 0)
            return True
        start = pos - len(method)
        if not method or parking.read != self.reads or parking.method_end != pos:
            data = method + data[pos:stop]
            start = 0
            stop = len(data)
        if consumer is None:
            part = Part(REQUEST, channel.number, data, start, stop, None, 1, 1, size, size == 0)
            part.paid = True
            self._park(channel, parking, part, None)
            return True
        key = consumer.key
        self._count(key, 1, 0, 0)
        last = parking.parcels[-1] if parking.parcels else None
        if last is not None and last.consumer is consumer and extends(last.part, key, size, data, start):
            last.part.end = stop
            last.part.count += 1
            last.part.complete = size == 0
            self.conversation.parked_bytes += stop - start
            self.conversation.parked_messages += 1
            return True
        part = Part(REQUEST, channel.number, data, start, stop, key, 1, 1, size, size == 0)
        part.paid = not self._limits(consumer)
        self._park(channel, parking, part, consumer)
        return True

    def body(self, channel: AmqpChannel, data: bytes, pos: int, stop: int, *, complete: bool) -> bool:
        """A body frame, or a piece of one, at `data[pos:stop]`; True where it is taken out of the stream.

        `complete`: the content ends with it.
        """
        parking = channel.parking
        if parking is None or parking.passing:
            return False
        if parking.swallows:
            self._leave_if_empty(channel, parking, within=not complete)
            return True
        last = parking.parcels[-1].part if parking.parcels else None
        if last is not None and last.kind != PLAIN and not last.complete and last.data is data and last.end == pos:
            last.end = stop
            last.complete = complete
            self.conversation.parked_bytes += stop - pos
        else:
            self._park(channel, parking, Part(BODY, channel.number, data, pos, stop, None, 0, 0, 0, complete), None)
        return True

    def other(self, channel: AmqpChannel, data: bytes, pos: int, stop: int) -> bool:
        """Any other method of `channel`; True where it has to keep its place behind what is parked."""
        parking = channel.parking
        if parking is None:
            return False
        self._flush_method(channel, parking)
        parking.passing = False
        if not parking.parcels:
            self._leave_if_empty(channel, parking, within=False)
            return False
        self._park(channel, parking, Part(PLAIN, channel.number, data, pos, stop), None)
        return True

    def overtake(self, channel: AmqpChannel) -> None:
        """A message follows that is no delivery, and overtakes what is parked."""
        channel.consumer = None
        if channel.parking is not None:
            channel.parking.passing = True
            channel.parking.swallows = False

    def _flush_method(self, channel: AmqpChannel, parking: Parking) -> None:
        """A delivery that never got its content: the broker's fault, and the client's to see."""
        method = parking.method
        if method:
            parking.method = b""
            parking.consumer = None
            self._park(channel, parking, Part(PLAIN, channel.number, method, 0, len(method)), None)

    def _limits(self, consumer: Consumer) -> bool:
        """Whether its deliveries need a verdict."""
        return not consumer.leaving and self.judge.limited(consumer.key)

    def _park(self, channel: AmqpChannel, parking: Parking, part: Part, consumer: Consumer | None) -> None:
        conversation = self.conversation
        conversation.parked_bytes += weight(part)
        if part.kind == REQUEST:
            conversation.parked_messages += part.count
            if not part.paid and parking.due == NEVER:
                parking.due = 0
                conversation.ask_due = 0
        parking.parcels.append(Parcel(part, consumer))
        if len(parking.parcels) == 1 and parking.stands_free():
            self.free[channel.number] = channel

    # ---- the judge -------------------------------------------------------------------------------------------------

    def ask(self, now: int) -> list[Part]:
        """Runs of deliveries that need a verdict now, in order. `settle` follows; nothing is read from the broker in between."""
        found: list[Part] = []
        room = DELIVERIES_ASKED
        for channel in self.parked.values():
            parking = channel.parking
            assert parking is not None
            if parking.due > now or room <= 0:
                continue
            parts: list[Part] = []
            for parcel in parking.parcels:
                part = parcel.part
                if part.kind == REQUEST and not part.paid:
                    parts.append(part)
                    room -= part.count
                    if room <= 0:
                        break
            parking.due = NEVER
            if parts:
                self.asked[channel.number] = parts
                found.extend(parts)
        self.asking = len(found) > 0
        self._reckon_due()
        return found

    def settle(self, now: int) -> None:
        """The verdicts are there. What passes leaves with `speak`."""
        self.asking = False
        for lane, parts in self.asked.items():
            channel = self.parked[lane]
            parking = channel.parking
            assert parking is not None
            self._settle_channel(parking, parts, now)
            if parking.stands_free():
                self.free[lane] = channel
        self.asked = {}
        self._reckon_due()

    def _settle_channel(self, parking: Parking, parts: list[Part], now: int) -> None:
        parcels = parking.parcels
        settled: list[Parcel] = []
        waits = NEVER
        for part in parts:
            while True:
                parcel = parcels.popleft()
                if parcel.part is part:
                    break
                settled.append(parcel)
            remark(part)
            self._count(part.key, 0, 0, 0)
            if part.paid or part.passed >= part.count:
                part.paid = True
                settled.append(parcel)
                continue
            if part.passed > 0:
                settled.append(Parcel(self._split(part, part.passed), parcel.consumer))
            if (part.end - part.start) * 2 < len(part.data):  # copied when half of it is gone, not for each delivery
                part.detach()
            settled.append(parcel)
            waits = min(waits, due(now, part.wait_ns))
            refuse(part)
        for parcel in parcels:
            if waits == NEVER and parcel.part.kind == REQUEST and not parcel.part.paid:
                waits = now  # there was no room to ask for that one
            if (parcel.part.end - parcel.part.start) * 2 < len(parcel.part.data):
                parcel.part.detach()
        parcels.extendleft(reversed(settled))
        parking.due = waits

    def _split(self, part: Part, count: int) -> Part:
        """Cut the first `count` deliveries off `part`, paid."""
        at = part.start
        for _ in range(count):
            at = publish_end(part.data, at, part.end)  # a delivery is built like a publish
        head = Part(REQUEST, part.lane, part.data, part.start, at, part.key, count, 1, part.size)
        head.paid = True
        part.start = at
        part.count -= count
        self.conversation.parked_bytes += weight(head) - (at - head.start)
        return head

    def _reckon_due(self) -> None:
        earliest = NEVER
        if not self.asking:
            for channel in self.parked.values():
                assert channel.parking is not None
                earliest = min(earliest, channel.parking.due)
        self.conversation.ask_due = earliest

    # ---- to the client ---------------------------------------------------------------------------------------------

    def speak(self, out: list[bytes]) -> int:
        """Append what may leave; called where the client's stream stands between frames. Returns what it then lacks of a frame (or 0)."""
        out.extend(self.loose)
        self.loose.clear()
        collecting = self.free.get(self.frame_lane) if self.frame_left else None
        for channel in list(self.free.values()):
            if channel is not collecting and not within_message(channel):
                self._release(channel, out)
        if collecting is not None and not within_message(collecting):  # last, because it may leave the client within a frame
            self._release(collecting, out)
            if collecting.parking is None:
                left, self.frame_left = self.frame_left, 0
                return left
        return 0

    def _release(self, channel: AmqpChannel, out: list[bytes]) -> None:
        parking = channel.parking
        assert parking is not None
        del self.free[channel.number]
        data = b""
        start = end = 0
        while parking.stands_free():
            part = parking.parcels.popleft().part
            self._unpark(part)
            if part.kind == REQUEST:
                self._count(part.key, 0, part.count, part.count * part.size)
            if part.data is data and part.start == end:
                end = part.end
                continue
            if end:
                out.append(data[start:end])
            data, start, end = part.data, part.start, part.end
        out.append(data[start:end])
        self._leave_if_empty(channel, parking, within=parking.method != b"")

    def _leave_if_empty(self, channel: AmqpChannel, parking: Parking, *, within: bool) -> None:
        """The channel goes on without a parking, unless something is still to come that must be taken out of the stream."""
        if not within and not parking.parcels:
            channel.parking = None
            del self.parked[channel.number]

    def _unpark(self, part: Part) -> None:
        self.conversation.parked_bytes -= weight(part)
        if part.kind == REQUEST:
            self.conversation.parked_messages -= part.count

    # ---- the ends --------------------------------------------------------------------------------------------------

    def lose(self, channel: AmqpChannel, *, by_client: bool) -> bytes:
        """`channel` is closed: give up what is parked there; what still goes to the client."""
        parking = channel.parking
        if parking is None:
            return b""
        self.asked.pop(channel.number, None)
        self.free.pop(channel.number, None)
        pieces: list[bytes] = []
        passes = False
        for parcel in parking.parcels:
            part = parcel.part
            self._unpark(part)
            if part.kind == REQUEST:
                passes = not by_client and (parcel.consumer is None or parcel.consumer.no_ack)
                if not passes:
                    self._give_up(part, counted=True)
                    continue
                self._count(part.key, 0, part.count, part.count * part.size)
            elif part.kind == BODY and not passes:
                continue
            pieces.append(part.data[part.start : part.end])
        parking.parcels.clear()
        parking.due = NEVER
        if not parking.passing:
            parking.swallows = True
        self._leave_if_empty(channel, parking, within=channel.down_left != 0 or (self.frame_left > 0 and self.frame_lane == channel.number))
        self._reckon_due()
        return b"".join(pieces)

    def lose_all(self, *, by_client: bool) -> bytes:
        """The connection is closed, or about to be."""
        self.over = True
        if not self.parked and not self.loose:
            return b""
        pieces = [*self.loose, *(self.lose(channel, by_client=by_client) for channel in list(self.parked.values()))]
        self.loose.clear()
        return b"".join(pieces)

    def end_by_client(self) -> None:
        """The client closes the connection, or is gone."""
        words = self.lose_all(by_client=True)
        if words:
            self.loose.append(words)

    def overhear(self, method: int, channel: AmqpChannel, arguments: bytes) -> None:
        """The client says one of `consumers.ASKS` on an open channel."""
        self.consumers.ask(method, channel.number, arguments)
        if method == CHANNEL_CLOSE:
            self._close(channel)
        elif method == BASIC_CANCEL and channel.parking is not None:
            self._let_go(channel, channel.parking)

    def _let_go(self, channel: AmqpChannel, parking: Parking) -> None:
        """The client waits for a cancel-ok, which comes behind what is parked for that consumer: that passes now."""
        for parcel in parking.parcels:
            if parcel.consumer is not None and parcel.consumer.leaving:
                parcel.part.paid = True
        if parking.stands_free():
            self.free[channel.number] = channel

    def _close(self, channel: AmqpChannel) -> None:
        """The client closes `channel`."""
        words = self.lose(channel, by_client=True)
        if words:
            self.loose.append(words)

    def may_speak(self) -> bool:
        """Whether `speak` may have something to say."""
        return len(self.free) > 0 or len(self.loose) > 0

    def _give_up(self, part: Part, *, counted: bool) -> None:
        if not counted:
            self._count(part.key, part.count, 0, 0)
        self.conversation.abandoned.append(part)

    # ---- counting --------------------------------------------------------------------------------------------------

    def _count(self, key: Key | None, received: int, forwarded: int, size: int) -> None:
        if key is None:
            return
        delivered = self.conversation.delivered
        if delivered and delivered[-1].key is key:
            last = delivered[-1]
            last.received += received
            last.forwarded += forwarded
            last.size += size
        else:
            delivered.append(Delivered(key, received, forwarded, size))

    def __repr__(self) -> str:
        return f"<Deliveries parked={list(self.parked)} free={list(self.free)} asking={self.asking}>"
