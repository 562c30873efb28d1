"""Deliveries, confirms and everything else a broker says, in random order, cut at random, with time passing in between: nothing is lost,
nothing is reordered but by confirms, every frame is whole, and no more is parked than the broker was asked for. The judge answers at
once or later; meanwhile the client goes on."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.protocols.amqp.conversation import AmqpConversation
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk

CHANNELS = (1, 2, 3)
QUEUES = ("jobs", "mail", "free")
SLOW = Rule("slow", Match(queue="jobs", operation="consume"), limit=Limit(messages=Rate(50), messages_burst=2))
# What waits for longer than two seconds goes back to the broker, and this one would not deliver it again: no debt is as large.
HEAVY = Rule("heavy", Match(queue="mail", operation="consume"), limit=Limit(bytes=Rate(1_000_000), bytes_burst=20_000))
OVERTAKES = ("Basic.Ack", "Basic.Nack")
LANE = st.sampled_from(CHANNELS)
MOST_PIECES = 100  # into which one thing said is cut: byte by byte is another test's

DELIVERY = st.tuples(st.just("deliver"), LANE, st.sampled_from(QUEUES), st.sampled_from((0, 1, 90, 5000, 30_000)))
EVENTS = st.one_of(
    DELIVERY,
    DELIVERY,
    st.tuples(st.just("method"), LANE, st.sampled_from(("qos", "cancel", "declare")), st.just(0)),
    st.tuples(st.just("ack"), LANE, st.just(""), st.just(0)),
    st.tuples(st.just("heartbeat"), st.just(0), st.just(""), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.just(""), st.integers(1, 60)),
    st.tuples(st.just("publish"), LANE, st.just(""), st.just(0)),
    st.tuples(st.just("leave"), LANE, st.just(""), st.just(0)),
)


class Schedule:
    """A pretend broker's words to a client that consumes from every queue on every channel and publishes with confirms."""

    def __init__(self, cuts: list[int], *, later: bool) -> None:
        self.talk = Talk("amqp")
        self.talk.client(amqp.greeting(channels=CHANNELS, confirms=CHANNELS, frame_max=4096))
        self.talk.broker(amqp.broker_start() + amqp.method(0, commands.Connection.OpenOk()))
        for channel in CHANNELS:
            for queue in QUEUES:
                self.talk.client(amqp.method(channel, commands.Basic.Consume(queue=queue, consumer_tag=queue, nowait=True)))
        self.talk.judge.replace(RuleSet((SLOW, HEAVY)))  # behind the consumers, which are so as their client has said
        self.talk.to_client = b""
        self.talk.later = later
        self.cuts = cuts
        self.tags = dict.fromkeys(CHANNELS, 0)
        self.published = dict.fromkeys(CHANNELS, 0)
        self.confirmed = dict.fromkeys(CHANNELS, 0)
        self.said = b""  # by the broker
        self.unsent = b""

    def play(self, kind: str, channel_id: int, what: str, number: int) -> None:
        if kind == "deliver":
            self.tags[channel_id] += 1
            body = b"%c" % (self.tags[channel_id] % 256) * number
            self.say(amqp.deliver(channel_id, body, tag=self.tags[channel_id], consumer_tag=what, cut=4088))
        elif kind == "method":
            answers = {
                "qos": commands.Basic.QosOk(), "cancel": commands.Basic.CancelOk("gone"), "declare": commands.Queue.DeclareOk("q", 0, 0),
            }  # fmt: skip
            self.say(amqp.method(channel_id, answers[what]))
        elif kind == "publish":
            self.talk.client(amqp.publish(channel_id, "orders"))
            self.published[channel_id] += 1
        elif kind == "ack" and self.confirmed[channel_id] < self.published[channel_id]:
            self.confirmed[channel_id] += 1
            self.say(amqp.ack(channel_id, self.confirmed[channel_id]))
        elif kind == "heartbeat":
            self.say(amqp.HEARTBEAT)
        elif kind == "leave":
            self.talk.client(b"".join(amqp.method(channel_id, commands.Basic.Cancel(queue)) for queue in QUEUES))
            self.check()
        elif kind == "wait":
            self.talk.wait(number * SECOND // 1000)
            self.check()

    def say(self, data: bytes) -> None:
        """Say it, in pieces: what is cut off at the end, or would come before a verdict, comes with the next words."""
        self.said += data
        self.unsent += data
        size = max(self.cuts[len(self.said) % len(self.cuts)], len(self.unsent) // MOST_PIECES)
        self.judge()
        while len(self.unsent) > size and not self.talk.asked:
            self.talk.broker(self.unsent[:size])
            self.unsent = self.unsent[size:]
        self.check()

    def judge(self) -> None:
        """The broker is not read before the verdicts are there."""
        self.talk.verdict()
        self.talk.flush()

    def check(self) -> None:
        """What must hold at any moment."""
        conversation = self.talk.conversation
        assert isinstance(conversation, AmqpConversation)
        parked = [channel.parking for channel in conversation.deliveries.parked.values()]
        parts = [one.part for parking in parked if parking is not None for one in parking.parked_parts]
        assert conversation.budget.parked_messages == sum(part.count for part in parts if part.kind == 1)
        assert conversation.budget.parked_bytes == sum(part.end - part.start + 400 for part in parts)
        assert sum(part.end - part.start for part in parts) <= len(self.said)
        waits = any(part.kind == 1 and not part.paid for part in parts)
        assert waits == (conversation.budget.ask_due < NEVER or len(self.talk.asked) > 0)

    def finish(self) -> None:
        self.talk.later = False
        self.judge()
        self.talk.broker(self.unsent)
        self.talk.wait(600 * SECOND)
        self.check()


def ordered(data: bytes) -> dict[int, list[bytes]]:
    """The frames of each channel without its confirms, and the confirms apart (under the channel's negative number)."""
    found: dict[int, list[bytes]] = {}
    for frame in amqp.read(data):
        found.setdefault(-frame.channel if frame.name in OVERTAKES else frame.channel, []).append(frame.raw)
    return found


def whole_messages(data: bytes) -> bool:
    """Whether every delivery's header and bodies follow it on its channel with nothing in between."""
    missing: dict[int, int] = {}
    for frame in amqp.read(data):
        left = missing.get(frame.channel, 0)
        if frame.name == "Basic.Deliver":
            if left:
                return False
            missing[frame.channel] = -1
        elif frame.name == "ContentHeader":
            if left != -1:
                return False
            missing[frame.channel] = frame.value.body_size
        elif frame.name == "ContentBody":
            missing[frame.channel] = left - (len(frame.raw) - 8)
            if left <= 0:
                return False
        elif left:
            return False
    return not any(missing.values())


@settings(deadline=None, max_examples=80)
@example(
    [("deliver", 1, "mail", 1), *[("deliver", 1, "mail", 30_000)] * 2, ("deliver", 2, "mail", 30_000)], False, [1]
)  # a turn left a debt
@given(st.lists(EVENTS, max_size=40), st.booleans(), st.lists(st.sampled_from((1, 7, 30, 200, 3000, 100_000)), min_size=1, max_size=4))
def test_nothing_is_lost_or_reordered_and_every_message_is_whole(
    events: list[tuple[str, int, str, int]], later: bool, cuts: list[int]
) -> None:
    schedule = Schedule(cuts, later=later)
    for event in events:
        schedule.play(*event)
    schedule.finish()
    got = schedule.talk.to_client
    assert ordered(got) == ordered(schedule.said)
    assert whole_messages(got)
    conversation = schedule.talk.conversation
    assert (conversation.budget.parked_bytes, conversation.budget.parked_messages, conversation.budget.ask_due) == (0, 0, NEVER)
    received = sum(one.received for one in conversation.reports.delivered)
    forwarded = sum(one.forwarded for one in conversation.reports.delivered)
    assert received == forwarded == sum(schedule.tags.values())
    assert conversation.reports.abandoned == []


@settings(deadline=None, max_examples=80)
@given(
    st.lists(EVENTS, max_size=25),
    LANE,
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from((30, 3000, 100_000)), min_size=1, max_size=3),
)
def test_a_channel_closed_by_either_side_leaves_the_rest_whole_and_every_delivery_accounted_for(
    events: list[tuple[str, int, str, int]], channel_id: int, by_client: bool, later: bool, cuts: list[int]
) -> None:
    schedule = Schedule(cuts, later=later)
    for event in events:
        schedule.play(*event)
    if by_client:
        schedule.talk.client(amqp.method(channel_id, commands.Channel.Close(200, "bye", 0, 0)))
        schedule.say(amqp.deliver(channel_id, b"late", tag=schedule.tags[channel_id] + 1, consumer_tag="jobs"))
        schedule.tags[channel_id] += 1
        end = amqp.method(channel_id, commands.Channel.CloseOk())
    else:
        end = amqp.method(channel_id, commands.Channel.Close(406, "no", 60, 80))
    schedule.say(end)
    schedule.finish()
    got = schedule.talk.to_client
    assert whole_messages(got)
    mine, all_said = ordered(got), ordered(schedule.said)
    assert mine.pop(channel_id)[-1] == all_said.pop(channel_id)[-1] == end
    assert mine == all_said
    conversation = schedule.talk.conversation
    delivered = sum(one.forwarded for one in conversation.reports.delivered)
    abandoned = sum(part.count for part in conversation.reports.abandoned if part.key is not None)
    assert sum(one.received for one in conversation.reports.delivered) == delivered + abandoned == sum(schedule.tags.values())
    assert conversation.budget.parked_bytes == 0
