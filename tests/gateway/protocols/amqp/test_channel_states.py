"""A channel's three states: only the steps of the tables are taken, and only the combinations listed there occur, and all of them do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.channel_states import (
    CLIENT_CLOSED,
    CLIENT_STEPS,
    GATEWAY_CLOSE_STEPS,
    LEGAL,
    NO_CLOSE,
    PASSING,
    SETTLED_STEPS,
)
from support.amqp import frames as amqp
from support.amqp.close_schedules import CloseSchedule
from support.wires.conversations import Talk, rule

States = tuple[int, int, int]
NEW: States = (CLIENT_CLOSED, PASSING, NO_CLOSE)
STEPS_AT_ONCE = 2  # one frame may take a state two steps on: parts were held when the broker closed, the client is told at once


class Watcher:
    """Looks at every channel after each step of a conversation."""

    def __init__(self) -> None:
        self.before: dict[int, States] = {}
        self.seen: set[States] = set()

    def look(self, talk: Talk) -> None:
        now = dict(channel_states(talk))
        for number, states in now.items():
            for table, old, new in zip(
                (CLIENT_STEPS, SETTLED_STEPS, GATEWAY_CLOSE_STEPS), self.before.get(number, NEW), states, strict=True
            ):
                assert new in reachable(table, old), f"channel {number}: {self.before.get(number, NEW)} became {states}"
        self.before = now
        self.seen |= set(now.values())


def channel_states(talk: Talk) -> Iterator[tuple[int, States]]:
    for number, channel in talk.conversation.channels.items():  # type: ignore[attr-defined]  # AMQP's
        yield number, (channel.client_state, channel.settled_state, channel.gateway_close)


def reachable(table: Mapping[int, set[int]], state: int) -> set[int]:
    found = {state}
    for _ in range(STEPS_AT_ONCE):
        found |= {following for known in found for following in table[known]}
    return found


def walked(seed: int, action: str, steps: int) -> set[States]:
    """The combinations that occur in one schedule, cut off by the broker's connection.close before everybody has come to rest."""
    watcher = Watcher()
    schedule = CloseSchedule(seed, action, watcher.look)
    schedule.play(steps)
    schedule.hear_broker(len(schedule.from_broker))
    schedule.talk.broker(amqp.method(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0)))
    schedule.looked()
    return watcher.seen


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 48), st.sampled_from(("close", "reject", "delay")), st.integers(1, 200))
@example(1, "close", 2000)
def test_channels_have_no_other_states_together_than_those_listed(seed: int, action: str, steps: int) -> None:
    assert walked(seed, action, steps) <= LEGAL


def test_every_combination_listed_does_occur() -> None:
    seen: set[States] = set()
    for seed in range(400):
        seen |= walked(seed, "close" if seed % 4 else "delay", 60 + seed % 100)
        if seen == LEGAL:
            break
    assert LEGAL - seen == set()


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_peers_that_break_the_protocol_take_a_channel_through_the_same_steps(said: list[tuple[bool, int]]) -> None:
    """Whatever either side says, in whatever order: a close-ok that answers nothing, a channel opened twice, a close after a close."""
    frames = [
        amqp.method(1, commands.Channel.Open()),
        amqp.method(1, commands.Channel.Close(200, "bye", 0, 0)),
        amqp.method(1, commands.Channel.CloseOk()),
        amqp.publish(1, "orders"),
        amqp.publish(1, "orders") * 3,
        amqp.deliver(1, b"body"),
        amqp.deliver(1, b"body")[:-13],  # its body is missing
    ]
    watcher = Watcher()
    talk = Talk("amqp", rule("close", messages=1, burst=1))
    talk.client(amqp.greeting(channels=(1,)))
    talk.broker(amqp.broker_opens())
    with contextlib.suppress(ProtocolError):  # the gateway hangs up, which is right
        for by_client, which in said:
            if by_client and which < 5:
                talk.client(frames[which])
            elif not by_client and which not in (3, 4):
                talk.broker(frames[which])
            watcher.look(talk)
