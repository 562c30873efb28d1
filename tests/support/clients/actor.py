"""One client with a consumer, an exclusive queue, confirms, plain publishes and transactions on one connection, and its ledger.

What the broker has in the end must be what it would have had of the same client directly, but for the limit: of each channel's publishes a
beginning, in order, nothing twice; all of them where the client's last bytes are sure to arrive; of a transaction all or nothing, and all
that was committed; all that was confirmed; and of the jobs just those that were not acknowledged. A broker that is killed may forget what
it has not confirmed, and acknowledgements: then what is there is in order, nothing twice, and all that was confirmed or committed.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress

import pika
import pika.exceptions
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp import frames as amqp
from support.clients.raw_amqp import CLOSE, RawClient, opening
from support.processes import HANG_S

JOBS = 40
STEPS = 80  # of a client, at most
PLAIN, CONFIRMS, TRANSACTIONS = 1, 2, 3  # channels; jobs are consumed on the first
SURE = ("FIN, everything read", "half-close", "connection.close")  # ends behind which all that was sent arrives
UNSURE = ("FIN", "RST", "connection.close and gone", "within a frame")
GATEWAY_KILLED, BROKER_KILLED = "the gateway is killed", "the broker is killed"
ACTIONS = ("spool", "delay", "block", "reject")
RULES: list[dict[str, object]] = [
    {
        "name": action,
        "match": {"protocol": "amqp", "routing_key": f"{action}.*"},
        "limit": {"messages": "100/s", "burst": {"messages": 10}},  # most of a client's messages wait
        "action": action,
    }
    for action in ACTIONS
]


class Actor:
    """One client, with what it has said. `direct` is a channel of the broker's own, with confirms."""

    def __init__(self, number: int, dice: random.Random, channel: BlockingChannel, port: int, end: str = "") -> None:
        self.dice = dice
        self.end = end or dice.choice(SURE + UNSURE)
        self.action = dice.choice(ACTIONS)
        self.name = f"{self.action}.{number}"
        self.jobs = f"jobs-{self.name}"
        self.own = f"own-{self.name}"  # exclusive
        self.sent: dict[int, list[str]] = {PLAIN: [], CONFIRMS: [], TRANSACTIONS: []}
        self.commits = [0]  # how much was sent on that channel before each commit
        self.acknowledged: list[int] = []  # jobs, in the order in which they came
        self.direct = channel
        for queue in (self.jobs, *self.queues()):
            channel.queue_declare(queue, durable=True)
        for job in range(JOBS):
            channel.basic_publish("", self.jobs, b"", pika.BasicProperties(message_id=str(job), delivery_mode=2))
        self.client = RawClient(port)
        self.client.socket.settimeout(HANG_S)
        select = amqp.method(CONFIRMS, commands.Confirm.Select()) + amqp.method(TRANSACTIONS, commands.Tx.Select())
        prefetch = amqp.method(PLAIN, commands.Basic.Qos(prefetch_count=dice.choice((0, 1, 10))))
        own = amqp.method(PLAIN, commands.Queue.Declare(queue=self.own, exclusive=True))
        self.client.say(opening(PLAIN, CONFIRMS, TRANSACTIONS) + select + prefetch + own)
        self.client.say(amqp.method(PLAIN, commands.Basic.Consume(queue=self.jobs, exclusive=dice.random() < 0.5)))
        self.client.wait_for("Basic.ConsumeOk")

    def queues(self) -> list[str]:
        """Where it publishes to, by channel: with a limit."""
        return [f"{self.name}-{channel}" for channel in self.sent]

    def look(self, seconds: float) -> None:
        """Read what comes within so long."""
        if self.client.ended or self.client.socket.fileno() < 0:
            return
        self.client.socket.settimeout(seconds)
        with suppress(TimeoutError, BlockingIOError):
            while self.client.read():
                pass
        self.client.socket.settimeout(HANG_S)

    def act(self) -> None:
        """Say something at random, again and again, then end."""
        for _ in range(self.dice.randrange(STEPS)):
            channel = self.dice.choice(list(self.sent))
            committing = len(self.commits) - 1 > self.client.count("Tx.CommitOk")  # then RabbitMQ takes nothing on that channel
            match self.dice.choice(("publish", "publish", "publish", "settle", "commit", "look")):
                case "publish" | "commit" if committing and channel == TRANSACTIONS:
                    self.look(0.01)
                case "publish":
                    self._publish(channel)
                case "settle":
                    self._acknowledge()
                case "commit" if not committing:
                    self.commits.append(len(self.sent[TRANSACTIONS]))
                    self.client.say(amqp.method(TRANSACTIONS, commands.Tx.Commit()))
                case "look":
                    self.look(self.dice.choice((0.0001, 0.01)))
        self._end()

    def _publish(self, channel: int) -> None:
        body = b"x" * self.dice.choice((0, 10, 3_000, 9_000))
        messages = b""
        for _ in range(self.dice.randrange(1, 6)):
            identity = str(len(self.sent[channel]))
            messages += amqp.publish(channel, f"{self.name}-{channel}", body, message_id=identity, persistent=True)
            self.sent[channel].append(identity)
        self.client.say(messages)

    def _acknowledge(self) -> None:
        tags = [int(frame.value.delivery_tag) for frame in self.client.told if frame.name == "Basic.Deliver"]
        new = tags[len(self.acknowledged) :]
        if new:
            last = new[self.dice.randrange(len(new))]
            self.acknowledged += [tag for tag in new if tag <= last]
            self.client.say(amqp.method(PLAIN, commands.Basic.Ack(last, multiple=True)))

    def _end(self) -> None:
        client = self.client
        if self.end in (GATEWAY_KILLED, BROKER_KILLED):
            self.hear_out()
            return
        if self.end == "FIN, everything read":
            client.socket.shutdown(socket.SHUT_WR)
            self.look(0.01)
            return
        if self.end == "half-close":
            client.socket.shutdown(socket.SHUT_WR)
        elif self.end == "connection.close":
            client.say(CLOSE)
        elif self.end == "FIN":
            client.socket.close()
        elif self.end == "RST":
            client.reset()
        elif self.end == "within a frame":
            client.say(amqp.publish(PLAIN, f"{self.name}-{PLAIN}", b"y" * 9_000, message_id="half")[:-100])
            client.socket.close()
        else:
            client.say(CLOSE)
            client.socket.close()

    # ---- the other side ----------------------------------------------------------------------------------------------

    def take(self, queue: str) -> list[str]:
        found = []
        while (got := self.direct.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(str(got[1].message_id))
        return found

    def gone(self) -> bool:
        """Whether neither its consumer nor its exclusive queue is at the broker any more."""
        if self.direct.queue_declare(self.jobs, passive=True).method.consumer_count:
            return False
        try:
            with self.direct.connection.channel() as channel:
                channel.queue_declare(self.own, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == 404)  # and not 405: locked
        return False

    def wrong(self) -> list[str]:
        """What the ledgers do not agree about."""
        if self.end in SURE:
            self.look(0.01)
        stored = {channel: self.take(f"{self.name}-{channel}") for channel in self.sent}
        acked, nacked = confirmed(self.client)
        faults = []
        for channel, sent in self.sent.items():
            expected = sent[: self.commits[-1]] if channel == TRANSACTIONS else sent
            if self.end == BROKER_KILLED or (channel == CONFIRMS and self.action in ("reject", "delay")):  # some are missing
                if stored[channel] != [identity for identity in expected if identity in set(stored[channel])]:
                    faults.append(f"channel {channel} out of order: {stored[channel]}")
            elif stored[channel] != expected[: len(stored[channel])]:
                faults.append(f"channel {channel}: {stored[channel]} is no beginning of {expected}")
            elif self.end in SURE and len(stored[channel]) != len(expected):
                faults.append(f"channel {channel}: {len(stored[channel])} of {len(expected)} stored")
        if self.end != BROKER_KILLED and len(stored[TRANSACTIONS]) not in self.commits:
            faults.append(f"{len(stored[TRANSACTIONS])} stored are no whole transactions: {self.commits}")
        sure = self.commits[self.client.count("Tx.CommitOk")]
        undone = [identity for identity in self.sent[TRANSACTIONS][:sure] if identity not in stored[TRANSACTIONS]]
        lost = [tag for tag in acked if str(tag - 1) not in stored[CONFIRMS]]
        refused = [tag for tag in nacked if str(tag - 1) in stored[CONFIRMS]]
        jobs = [int(job) for job in self.take(self.jobs)]
        left = list(range(len(self.acknowledged), JOBS))
        if self.end == BROKER_KILLED:
            as_left = jobs == sorted(set(jobs)) and set(left) <= set(jobs)
        else:
            as_left = jobs == left or (self.end not in SURE and jobs == list(range(JOBS - len(jobs), JOBS)) and len(jobs) > len(left))
        if not as_left:
            faults.append(f"jobs {jobs} are left, acknowledged were {len(self.acknowledged)}")
        for what, which in (("committed and not stored", undone), ("confirmed and not stored", lost), ("refused and stored", refused)):
            faults += [f"{what}: {which}"] * bool(which)
        return faults

    def hear_out(self) -> None:
        """Read what comes until the connection ends, or is ended in words."""
        while not self.client.ended and not self.client.count("Connection.Close"):
            self.client.read()
        self.client.socket.close()

    def close(self) -> None:
        self.client.socket.close()
        for queue in (self.jobs, *self.queues()):
            self.direct.queue_delete(queue)


def confirmed(client: RawClient) -> tuple[set[int], set[int]]:
    """The tags that were acked and nacked."""
    answers: dict[int, bool] = {}
    low = 0
    for frame in client.told:
        if frame.channel == CONFIRMS and frame.name in ("Basic.Ack", "Basic.Nack"):
            tag, acked = int(frame.value.delivery_tag), frame.name == "Basic.Ack"
            for each in range(low + 1, tag + 1) if frame.value.multiple else (tag,):
                answers.setdefault(each, acked)
            while low + 1 in answers:
                low += 1
    return {tag for tag, acked in answers.items() if acked}, {tag for tag, acked in answers.items() if not acked}
