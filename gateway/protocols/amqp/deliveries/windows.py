"""Windows: how much of a limited queue the broker may have on its way to one consumer.

The naive way takes what the client's prefetch allows, without one as much as fits, and parks it. What is parked the broker counts as
delivered: it runs into `consumer_timeout`, past its TTL, past messages of a higher priority, into a quorum queue's delivery limit with each
reconnect; and what was taken without acknowledgement is lost with the connection. So the gateway takes what passes within WINDOW_NS, and
none while nothing passes:

* A consumer that a rule limits has a prefetch of the gateway's own (`basic.qos` before and behind its `basic.consume`), unless the client's
  is smaller. One without acknowledgement becomes one with, and the gateway acknowledges what it passes on.
* While its limit lets nothing pass within FAR_NS it is not at the broker: AWAY (`subscription.py`). One that begins then is not sent there
  at all. The broker is asked whether the queue is there (a passive declare, so its refusals reach the client), and the gateway answers. One
  that is there is cancelled by the gateway; what is parked of it and what still comes goes back to the queue, and only when the broker's
  cancel-ok is there it may come again, so that the order of the queue stays.
* Limits of less than a message in FAR_NS: it is there for one message each time, and cancelled before that is acknowledged. Of those that
  share such a limit one comes, of those of other queues another each SOON_NS: what came for the others would go back, each time.
* A client that keeps a whole window unsettled for GRACE_NS gets another one on top: it may be waiting for more, up to the prefetch it asked
  for, before it settles them together.
* A prefetch holds for consumers that begin behind it. So where a limit comes, goes or changes by much, the consumer is begun anew.

What may not be away stays where it is: the consumer of a queue that goes with its last one (auto-delete, `x-expires`, as far as it was
declared on this connection), which is begun anew before it is cancelled. And all is as the client says in a transaction, where settling
waits for a commit, and of a stream, which would be read from elsewhere by a consumer begun anew, and delivers nothing again that goes back.
What comes then is parked, as much as the memory allows.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.protocols.amqp.broker_requests import acknowledge, cancel, consume, give_back, look_for, qos, takes_requests
from gateway.protocols.amqp.deliveries.mover import SubscriptionMover
from gateway.protocols.amqp.deliveries.parked import delivery_tag
from gateway.protocols.amqp.deliveries.subscription import (
    ASKED,
    AWAY,
    HERE,
    LEAVING,
    NO_ACK,
    NO_WAIT,
    QUEUE,
    STREAM,
    UNSEEN,
    Subscription,
)
from limiter.limits import NEVER, SECOND

if TYPE_CHECKING:
    from gateway.protocols.amqp.broker_requests import BrokerRequests
    from gateway.protocols.amqp.channel import AmqpChannel
    from gateway.protocols.amqp.deliveries.consumers import Consumers
    from gateway.protocols.amqp.deliveries.parked import ParkedPart
    from gateway.protocols.amqp.deliveries.parking_lot import ParkingLot
    from gateway.protocols.amqp.deliveries.subscription import Consumer
    from gateway.protocols.amqp.deliveries.verdicts import DeliveryVerdicts
    from limiter.judge import Judge
    from limiter.keys import Key
    from limiter.reservation import Reservation
    from limiter.rules.rule_set import Identity

REPLY_TO: Final = b"amq.rabbitmq.reply-to"  # direct reply-to: what it begins with is answered to its consumer by name
WINDOW_NS: Final = SECOND  # what a limit lets pass in so long may be on its way; a guess: many times any way to the broker and back
FAR_NS: Final = 2 * SECOND  # a message that would have to wait for longer stays with the broker
SOON_NS: Final = SECOND // 2  # and is fetched when it would have to wait no longer than this
GRACE_NS: Final = SECOND // 2  # in which a client that acknowledges each message has acknowledged one; a guess
MAX_WANTED: Final = 1024  # queues of one slow limit that take turns in order; of more, all begin anew for a moment; a guess
PARKED_NS: Final = SECOND // 10  # between two looks whether what was taken without acknowledgement has gone; a guess
MOST: Final = 65_535  # a prefetch, as AMQP has room for


class Windows(SubscriptionMover):
    """Those of one connection."""

    def __init__(
        self,
        judge: Judge,
        channels: dict[int, AmqpChannel],
        consumers: Consumers,
        lot: ParkingLot,
        verdicts: DeliveryVerdicts,
        requests: BrokerRequests,
    ) -> None:
        self.judge = judge
        self.channels = channels
        self.consumers = consumers
        self.lot = lot
        self.verdicts = verdicts
        self.requests = requests
        self.timed: dict[Subscription, int] = NO_ENTRIES  # when to look at one again; monotonic ns
        self.due = NEVER  # the first of these
        self.now = 0  # monotonic ns; of the last verdicts, or later
        self.returning: list[Subscription] = NO_ITEMS  # what is parked of these goes back

    # ---- how large ---------------------------------------------------------------------------------------------------

    def _limit_of(self, subscription: Subscription) -> int:
        """How many messages its limits let pass in WINDOW_NS, its share of it, at least 1; 0: none limits it. Sets `slow`."""
        key = None if subscription.queue.name is None else self.consumers.key_of(subscription.queue.name)
        subscription.slow = False
        tx = self.channels[subscription.channel].selects_tx  # also where that is still on its way
        if key is None or tx or self._as_client_says(subscription) or not self.judge.is_limited(key):
            return 0
        window = 0
        for effective in self.judge.list_enforced(key):
            limit = effective.limit
            sharing = max(self.judge.origins.consumers.get(effective.identity, 1), 1)
            if limit.cost_ns(1, subscription.size) > FAR_NS:
                subscription.slow = True
            if limit.messages is not None:
                most = -(-limit.messages.tokens_in(WINDOW_NS) // sharing)
                window = min(window or MOST, max(most, 1))
            if limit.bytes is not None:
                most = limit.bytes.tokens_in(WINDOW_NS) // (subscription.size * sharing)
                window = min(window or MOST, max(most, 1))
        return 1 if subscription.slow else window

    def _window_of(self, subscription: Subscription) -> int:
        """The prefetch it is to have at the broker; 0: the client's own."""
        window = self._limit_of(subscription)
        fixed = self._stays(subscription) and subscription.exclusive()  # it gets no other one when it settles more at once
        if not subscription.without_ack() and subscription.prefetch > 0 and (fixed or subscription.prefetch <= window):
            return 0
        return window

    def _as_client_says(self, subscription: Subscription) -> bool:
        """Whether the broker has it as the client asked for it, whatever its limit is."""
        name = subscription.queue.name
        replies = name is not None and name.startswith(REPLY_TO)  # no queue: its consumer cannot be had anew, nor acknowledge
        return replies or subscription.queue.stream or self.channels[subscription.channel].tx

    def _stays(self, subscription: Subscription) -> bool:
        """Whether its queue must not be without it for a moment."""
        return subscription.queue.stays_while_consumed

    def _move(self, subscription: Subscription, state: int) -> None:
        """It is at the broker, or away: then it counts as a request for messages that a rule keeps here."""
        if not subscription.ended:
            self.lot.budget.held_polls += (state == AWAY) - (subscription.state == AWAY)
        subscription.state = state

    def away(self) -> Part | None:
        """What one of those that are away waits for, for operators."""
        for subscription in self.consumers.subscriptions():
            name = subscription.queue.name
            key = None if subscription.state != AWAY or name is None else self.consumers.key_of(name)
            enforced = [] if key is None else self.judge.list_enforced(key)
            if enforced:
                part = Part(PLAIN, subscription.channel, b"", 0, 0, key)
                part.rule = enforced[0].rule
                return part
        return None

    def sought(self, subscription: Subscription, consumers: int) -> bool:
        """The queue of `subscription`, which is away, is there, with so many consumers: whether the gateway answers in the broker's place.

        Where it asks to be the only one, and is not, it goes to the broker, which refuses it.
        """
        if not subscription.exclusive() or consumers == 0:
            self.look_at(subscription, 0)
            return True
        self._move(subscription, HERE)
        channel = self.channels[subscription.channel]
        assert subscription.queue.name is not None
        self.requests.send(
            channel, consume(channel.number, subscription.queue.name, subscription.tag, subscription.bits, subscription.rest)
        )
        return False

    def _may_move(self, subscription: Subscription) -> bool:
        """Whether its channel is open."""
        channel = self.channels.get(subscription.channel)
        return channel is not None and takes_requests(channel)

    # ---- it begins ---------------------------------------------------------------------------------------------------

    def begin(self, subscription: Subscription) -> bytes:
        """The client's basic.consume has come: what goes to the broker in its place; b"": it goes as it is."""
        self._share(subscription)
        subscription.window = self._window_of(subscription)
        channel = subscription.channel
        if subscription.slow and not self._stays(subscription):
            self._move(subscription, AWAY)
            assert subscription.queue.name is not None
            return look_for(channel, subscription.queue.name)
        if subscription.window == 0:
            return b""
        return self._frames(subscription, subscription.window, subscription.bits, subscription.tag)

    def begun(self, subscription: Subscription, consumer: Consumer) -> None:
        """It has a tag, and `consumer` is what comes for it from now on."""
        subscription.consumer = consumer
        consumer.subscription = subscription
        consumer.capacity = subscription.window
        consumer.watched = subscription.window > 0
        self._follow(subscription)  # the rules may be others by now, or the queue had no name before

    def _frames(self, subscription: Subscription, prefetch: int, bits: int, tag: bytes) -> bytes:
        """basic.consume with a prefetch of its own; that of the channel is the client's again behind it."""
        channel = subscription.channel
        consumers = self.consumers.channels[channel]
        consumers.hidden_qos += 2
        name = subscription.queue.name
        assert name is not None
        if subscription.window > 0:
            bits &= ~NO_ACK
        return qos(channel, min(prefetch, MOST)) + consume(channel, name, tag, bits, subscription.rest) + qos(channel, consumers.prefetch)

    def _come(self, subscription: Subscription) -> None:
        """It comes (again) to the broker."""
        channel = self.channels[subscription.channel]
        subscription.window = self._window_of(subscription)
        self._move(subscription, HERE)
        prefetch = subscription.prefetch
        consumer = self.consumers.begin_anew(subscription)
        consumer.watched = True
        if subscription.window > 0:
            room = subscription.window if prefetch == 0 or subscription.without_ack() else prefetch - subscription.open
            prefetch = consumer.capacity = max(min(subscription.window, room), 1)
        elif consumer.no_ack and channel.settlements is not None:
            channel.settlements.lose_track()
        self.requests.send(channel, self._frames(subscription, prefetch, subscription.bits | NO_WAIT, consumer.tag))

    def _replace(self, subscription: Subscription) -> None:
        """It is begun anew, with the window that its limit asks for now; what is on its way of it comes."""
        before = subscription.consumer
        if subscription.queue.stream or self._is_to_show_its_source(subscription):
            return  # known as one only now
        if subscription.exclusive():
            self.leave(subscription, returns=False)
        elif before is not None and subscription.state == HERE and not subscription.ended and self._may_move(subscription):
            self._come(subscription)
            self._cancel(subscription, before)

    # ---- a queue or a stream -----------------------------------------------------------------------------------------

    def ask_source(self, channel: AmqpChannel, consumer: Consumer) -> None:
        """The first message for `consumer` has a stream's header, or a copy: the broker is asked, which counts no consumers of a stream.

        Where it cannot be asked, nothing of this consumer goes back: it may be a stream's.
        """
        subscription = consumer.subscription
        if subscription is None:
            consumer.source = QUEUE  # basic.get of a stream is refused
        elif subscription.ended or consumer.leaves or not self._may_move(subscription):
            consumer.source = STREAM
        elif self.consumers.ask_source(subscription, consumer):
            consumer.source = ASKED
            self.requests.send(channel, look_for(channel.number, consumer.queue))
        else:
            consumer.source = STREAM

    def source_answered(self, consumer: Consumer, consumers: int) -> None:
        """The broker counts so many consumers of what `consumer` reads, itself included unless that is a stream."""
        subscription = consumer.subscription
        assert subscription is not None
        if consumers == 0:
            consumer.source = STREAM
            self.consumers.meet_stream(subscription.queue)
            return
        self.know_queue(consumer)
        settlements = self.channels[subscription.channel].settlements
        if settlements is not None and not self.consumers.any_stream(subscription.channel):
            settlements.of_streams.clear()

    def know_queue(self, consumer: Consumer) -> None:
        """What `consumer` reads is no stream."""
        consumer.source = QUEUE
        subscription = consumer.subscription
        if subscription is not None and (subscription.again or subscription.queue.stream):
            subscription.again = True
            subscription.queue.stream = False  # the broker has refused the declaration that it was known by
            self.look_at(subscription, 0)

    def _is_to_show_its_source(self, subscription: Subscription) -> bool:
        """Whether nobody knows yet where its first message comes from. Then its limit is looked at again when that is known."""
        consumer = subscription.consumer
        if consumer is None:
            return False
        channel = self.channels[subscription.channel]
        parking = channel.parking
        coming = channel.consumer if parking is None or not parking.method else parking.consumer
        if consumer.source == ASKED or (consumer.source == UNSEEN and coming is consumer):
            subscription.again = True
            return True
        return False

    # ---- it leaves ---------------------------------------------------------------------------------------------------

    def leave(self, subscription: Subscription, *, returns: bool) -> None:
        """Cancel it at the broker; with `returns` what is parked of it and what still comes goes back, if it can."""
        consumer = subscription.consumer
        if consumer is None or subscription.state != HERE or subscription.ended:
            return
        if self._stays(subscription) or self._as_client_says(subscription) or not self._may_move(subscription):
            return
        if self._is_to_show_its_source(subscription):
            return
        subscription.state = LEAVING
        self._end_turn(subscription)
        self._cancel(subscription, consumer)
        if returns:
            for each in self.consumers.channels[subscription.channel].tags.values():  # and those before it that are leaving
                if each.subscription is subscription and not each.no_ack:
                    each.returns = each.watched = True
            self.returning = added(self.returning, subscription)
            self.take_back()

    def _cancel(self, subscription: Subscription, consumer: Consumer) -> None:
        """Cancel `consumer` at the broker."""
        consumer.leaves = True
        channel = self.channels[subscription.channel]
        self.requests.send(channel, cancel(channel.number, consumer.tag or subscription.tag, answered=True))

    def left(self, subscription: Subscription, consumer: Consumer) -> None:
        """The broker has cancelled `consumer`."""
        if subscription.state == LEAVING and subscription.consumer is consumer:
            self._move(subscription, AWAY)
            self.look_at(subscription, 0)

    def take_back(self) -> None:
        """Give back what is parked of those that leave, unless the judge has it, or parked parts leave just now: then behind that."""
        if not self.returning or self.verdicts.asking or self.lot.releasing:
            return
        returning, self.returning = self.returning, NO_ITEMS
        for subscription in returning:
            self._give_back(subscription)

    def _give_back(self, subscription: Subscription) -> None:
        channel = self.channels[subscription.channel]
        parking = channel.parking
        if parking is None:
            return
        lot = self.lot
        kept: deque[ParkedPart] = deque()
        waits = False  # whether what is kept needs a verdict
        goes = False  # the last delivery does, and its body with it
        whole = True  # it is
        for parked_part in parking.parked_parts:
            part = parked_part.part
            if part.kind == REQUEST:
                consumer = parked_part.consumer
                goes = consumer is not None and consumer.subscription is subscription and not (consumer.no_ack or part.paid)
                waits = waits or not (goes or part.paid)
            if goes and part.kind in (REQUEST, BODY):
                whole = part.complete
                lot.unpark(part)
                if part.kind == REQUEST:
                    lot.give_up(part)
                    self.return_to_broker(channel, part.data, part.start, part.count)
                continue
            kept.append(parked_part)
        parking.parked_parts = kept
        if not waits:
            parking.due = NEVER
        within = goes and not whole
        coming = parking.consumer if parking.method else None
        if (
            coming is not None and coming.subscription is subscription and coming.source == QUEUE and not coming.no_ack
        ):  # else its header says where it goes
            self.return_to_broker(channel, parking.method, 0, 1)
            within = True
        if within:
            parking.passing = False
            parking.swallows = True
        lot.free.pop(channel.number, None)
        lot.set_free(channel, parking)
        lot.leave_if_empty(channel, parking, within=within or parking.method != b"" or parking.swallows or parking.passing)
        self.verdicts.update_due()

    def return_to_broker(self, channel: AmqpChannel, data: bytes, start: int, count: int) -> None:
        """`count` deliveries, the first of which begins at `data[start]`, go back to their queue."""
        first = delivery_tag(data, start)
        if not channel.recovers:  # else they do by that, and are not to be settled twice (406)
            self.requests.send(channel, give_back(channel.number, first, count))
        settlements = channel.settlements
        if settlements is not None:
            for tag in range(first, first + count):
                settlements.settle(tag, multiple=False)

    # ---- what passes -------------------------------------------------------------------------------------------------

    def passes(self, channel: AmqpChannel, consumer: Consumer, part: Part) -> None:
        """`part`, a run of deliveries for `consumer`, leaves for the client."""
        subscription = consumer.subscription
        if subscription is None:
            return
        if subscription.slow:
            self.leave(subscription, returns=True)
        settlements = channel.settlements
        if settlements is None:
            return
        first = delivery_tag(part.data, part.start)
        count = part.count
        if subscription.without_ack():
            if consumer.acknowledged_here():
                self.requests.send(channel, acknowledge(channel.number, first, count, all_before=not settlements.by_client))
                for tag in range(first, first + count):
                    settlements.settle(tag, multiple=False)
            return
        if subscription.ended or (consumer.capacity == 0 and subscription.prefetch == 0):
            return
        settlements.watch(first, count, consumer)
        subscription.size = max(part.size, 1)
        if 0 < consumer.capacity <= consumer.open and subscription not in self.timed:
            self.look_at(subscription, self.now + GRACE_NS)

    def judged(self, now: int) -> None:
        """The judge has looked at deliveries."""
        self.now = now

    def get_answered(self, key: Key, reservation: Reservation, messages: int, size: int) -> None:
        """The broker's answer to a basic.get that has passed by `reservation` brings so many messages and bytes."""
        if reservation.taken:
            settlement = Part(PLAIN, 0, b"", 0, 0, key, 1, messages, size)
            settlement.reservation = reservation
            self.verdicts.settlements = added(self.verdicts.settlements, settlement)
            self.verdicts.update_due()

    def refused(self, consumer: Consumer | None, part: Part) -> None:
        """`part` has to wait."""
        subscription = None if consumer is None else consumer.subscription
        if subscription is not None and part.wait_ns > FAR_NS:
            subscription.size = max(part.size, 1)
            self.leave(subscription, returns=True)

    # ---- in time -----------------------------------------------------------------------------------------------------

    def look_at(self, subscription: Subscription, due: int) -> None:
        """Look at it again at `due`."""
        self.timed = put(self.timed, subscription, due)
        self.due = min(self.due, due)
        if self.requests.wake is not None:
            self.requests.wake()

    def tick(self, now: int) -> None:
        """Look at those whose time has come."""
        if self.due > now:
            return
        self.now = now
        coming = [subscription for subscription, due in self.timed.items() if due <= now]
        for subscription in coming:
            del self.timed[subscription]
        self.due = min(self.timed.values(), default=NEVER)
        for subscription in coming:
            if not subscription.ended:
                self._look(subscription, now)

    def _look(self, subscription: Subscription, now: int) -> None:
        if subscription.state == AWAY:
            if not self._may_move(subscription):
                return
            if self._parks(subscription):
                self.look_at(subscription, now + PARKED_NS)
                return
            if not subscription.without_ack() and 0 < subscription.prefetch <= subscription.open:
                self.look_at(subscription, now + GRACE_NS)  # the client has all that it asked for
                return
            wait = self._wait(subscription, now)
            if subscription.slow:
                wait = self._take_turn(subscription, wait, now)
            if wait == 0:
                self._come(subscription)
            elif wait < NEVER:
                self.look_at(subscription, now + wait)
            return
        if subscription.again and not self._is_to_show_its_source(subscription):
            subscription.again = False
            self._follow(subscription)
            if self._wait(subscription, now) > FAR_NS:
                self.leave(subscription, returns=True)
        consumer = subscription.consumer
        if consumer is None or subscription.state != HERE or not 0 < consumer.capacity <= consumer.open:
            return
        if self._parks(subscription) or 0 < subscription.prefetch <= subscription.open:
            self.look_at(subscription, now + GRACE_NS)
        elif not subscription.slow or self._stays(subscription):
            self._replace(subscription)

    def _wait(self, subscription: Subscription, now: int) -> int:
        """How long it has to stay away; NEVER: until its limit is another one."""
        if self._limit_of(subscription) == 0:
            return 0
        assert subscription.queue.name is not None
        key = self.consumers.key_of(subscription.queue.name)
        wait = 0 if key is None else self.judge.wait_of(key, subscription.size, now)
        if subscription.slow:
            return wait
        return 0 if wait <= SOON_NS else min(wait, NEVER + SOON_NS) - SOON_NS

    def _take_turn(self, subscription: Subscription, wait: int, now: int) -> int:
        """How long it has to wait, beyond `wait`, for others that fetch a message of its slow limits, from its queue or just now from
        others, or that have waited for longer; 0: it may."""
        origin = self.consumers.origin
        queue = subscription.queue.name
        assert queue is not None
        key = self.consumers.key_of(queue)
        assert key is not None, "it has a slow limit"
        assert origin is not None
        assert origin.vhost is not None
        comers = self.judge.origins.comers
        size = subscription.size
        place = origin.vhost, queue
        slow = {
            each.identity: each.limit.cost_ns(1, size) for each in self.judge.list_enforced(key) if each.limit.cost_ns(1, size) > FAR_NS
        }
        identities = list(slow)
        next_of = [identity for identity in identities if self._is_next(identity, place, slow[identity], now)]
        if wait > 0:
            return wait
        for identity in identities:
            for vhost, other, since in comers.get(identity, {}).values():
                if (vhost, other) == (origin.vhost, queue):
                    return FAR_NS
                if now - since < SOON_NS:
                    return SOON_NS
        if len(next_of) < len(identities):
            return SOON_NS
        for identity in identities:
            comers.setdefault(identity, {})[subscription] = (origin.vhost, queue, now)
            self.judge.origins.fetches[identity][place] = now, now
        subscription.turns = identities
        return 0

    def _is_next(self, identity: Identity, place: tuple[bytes, bytes], every_ns: int, now: int) -> bool:
        """Whether no other queue of a slow limit, of which a message was wanted lately, has waited longer for one than `place`."""
        wanted = self.judge.origins.fetches.setdefault(identity, {})
        lately = now - every_ns * 3 // 2 - SOON_NS  # whoever waits asks when the next message is due
        if len(wanted) >= MAX_WANTED:
            for other in [each for each, (asked, _) in wanted.items() if asked < lately]:
                del wanted[other]
            if len(wanted) >= MAX_WANTED:
                wanted.clear()
        _, mine = wanted.get(place, (0, 0))
        wanted[place] = now, mine
        return not any(asked >= lately and fetched < mine for asked, fetched in wanted.values())

    def _end_turn(self, subscription: Subscription) -> None:
        comers = self.judge.origins.comers
        for identity in subscription.turns:
            there = comers.get(identity, {})
            there.pop(subscription, None)
            if not there:
                comers.pop(identity, None)
        subscription.turns = []

    def _parks(self, subscription: Subscription) -> bool:
        """Whether something of it is parked."""
        parking = self.channels[subscription.channel].parking
        if parking is None:
            return False
        for parked_part in parking.parked_parts:
            if parked_part.consumer is not None and parked_part.consumer.subscription is subscription:
                return True
        return False

    # ---- other limits ------------------------------------------------------------------------------------------------

    def limits_changed(self) -> None:
        """Other rules are in force."""
        for subscription in self.consumers.subscriptions():
            self._follow(subscription)

    def select(self, channel: AmqpChannel) -> None:
        """The client's tx.select goes on behind what this says: from then on what is consumed on `channel` is as the client says."""
        known = self.consumers.channels.get(channel.number)
        subscriptions = [] if known is None else [each for each in known.subscriptions.values() if not each.ended]
        for subscription in subscriptions:
            if subscription.exclusive() and subscription.window > 0:
                self.leave(subscription, returns=False)
        channel.tx = True
        for subscription in subscriptions:
            self._follow(subscription)

    def _follow(self, subscription: Subscription) -> None:
        """Its limit may be another one than that which it has its window by."""
        self._unshare(subscription)
        self._share(subscription)
        if subscription.state == AWAY:
            self.look_at(subscription, 0)
            return
        before = subscription.window
        slow = subscription.slow
        window = self._window_of(subscription)
        if not subscription.slow:
            self._end_turn(subscription)
        less = 0 < window < (before or MOST) and (before == 0 or 2 * window < before)
        if not self._stays(subscription) and (less or (subscription.slow and not slow)):
            self.leave(subscription, returns=True)
        elif (window == 0) != (before == 0) or window > 2 * before:
            self._replace(subscription)

    def _share(self, subscription: Subscription) -> None:
        key = None if subscription.queue.name is None else self.consumers.key_of(subscription.queue.name)
        if key is None or not self.judge.is_limited(key):
            return
        counts = self.judge.origins.consumers
        for effective in self.judge.list_enforced(key):
            counts[effective.identity] = counts.get(effective.identity, 0) + 1
            subscription.shares.append(effective.identity)

    def _unshare(self, subscription: Subscription) -> None:
        counts = self.judge.origins.consumers
        for identity in subscription.shares:
            left = counts.get(identity, 1) - 1
            if left > 0:
                counts[identity] = left
            else:
                counts.pop(identity, None)
                self.judge.origins.fetches.pop(identity, None)
        subscription.shares = []

    def end(self, subscription: Subscription) -> None:
        """The client has cancelled it, or its channel is closed."""
        if not subscription.ended and subscription.state == AWAY:
            self.lot.budget.held_polls -= 1
        subscription.ended = True
        self._unshare(subscription)
        self._end_turn(subscription)
        self.timed.pop(subscription, None)

    def __repr__(self) -> str:
        return f"<Windows timed={len(self.timed)} due={self.due}>"
