"""The cases of the RocketMQ suite (tests/end_to_end/clients/java/rocketmq_suite): what each shows, and where it cannot be run and why.

What the Java client cannot do even without a gateway, so there is no case for it:
* `request(message, timeout)` and its callback form without a queue, in 5.3.3: they return when the request is stored, then time out or
  deliver null. The suite asks with a queue and a callback, which works in both clients.
* Binary headers and signatures together, in 5.3.3: an empty value (of 17, creating a topic) is signed as one and read as none, so the
  broker refuses it.
* A half-close in the middle of a request: the broker closes when it reads the end, and whether its answer still comes is a race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLIENTS: Final = ("5", "4")
PLAIN: Final = "plain"  # JSON headers
BINARY: Final = "binary"  # binary headers (rocketmq.serialize.type=ROCKETMQ)
SIGNED: Final = "signed"  # JSON headers, every request signed, and brokers that demand it
STYLES: Final = (PLAIN, BINARY, SIGNED)
# Of `make test`, each in one mode: what is signed is plain for the rest, and behind its name server a gateway does what it does without.
QUICK: Final = {(BINARY, "5"): "B", (SIGNED, "4"): "A"}

CASES: Final[dict[str, dict[str, str]]] = {  # by Java class, in the order in which they are started: the slowest first
    "Administering": {
        "admin_reset_offset": "222, and 220 to the client",
        "admin_running_info": "307 to the client, and of one that is not there",
        "admin_consume_directly": "309 to the client",
        "admin_consumer_status": "223, and 221 to the client",
        "admin_consumer_connection": "203: who consumes, from where, with which subscriptions",
        "admin_producer_connection": "204: who produces, from where",
        "admin_topic_route": "105: the route of a topic, and of one that is not there",
        "admin_cluster": "106: brokers and their addresses",
        "admin_topic_stats": "202: offsets of all queues",
        "admin_broker": "26, 28, 21, 201: long answers of the broker",
    },
    "Transacting": {
        "transaction_commit": "half messages, 37 with commit; the broker does not ask",
        "transaction_rollback": "37 with rollback; the broker does not ask",
        "transaction_check_back": "39 to the client, answered with commit and rollback",
    },
    "Modern": {
        "pop_again": "200053: a popped message that failed is visible again, and comes again",
        "pop": "400, 200050, 200051: consumption by pop",
        "recall": "370: a timer message recalled before its time",
        "compressed_lz4": "a body compressed with LZ4",
        "compressed_zstd": "a body compressed with Zstandard",
        "namespace_v2": "the header fields ns and nsd",
    },
    "Pushing": {
        "push_retry": "36, and the message again from %RETRY%group",
        "push_dead_letter": "36 until the message is in %DLQ%group",
        "push_concurrently": "34, 38, 11, 15: everything once",
        "push_orderly": "41, 42: everything once, in order by queue",
        "push_orderly_suspended": "a refused message comes again before those behind it",
        "push_broadcast": "both consumers get everything",
        "push_waits": "long polls on empty queues are answered when a message comes",
        "push_large": "many answers of several MiB",
        "filter_tags": "tags",
        "filter_sql": "SQL92",
        "filter_sql_wrong": "46: an expression that is none is refused",
    },
    "Balancing": {
        "rebalance": "40 to the clients: two share the queues, one takes over",
        "rebalance_orderly": "the same with locked queues",
    },
    "Asking": {
        "request_reply": "325, and 326 to the client, both on one connection",
        "request_reply_other_connection": "the same between two connections",
        "request_without_answer": "a request that nobody answers",
    },
    "Pulling": {
        "pull_blocked": "a pull held by the broker until a message comes, and until its time is over",
        "lite_subscribe": "lite pull with subscribe; offsets committed",
        "lite_assign": "lite pull with assign and seek",
        "pull": "found, no new message, illegal offset, no match",
        "offsets": "29 to 32, 14, 15, 208: offsets searched, read and committed",
        "send_back_by_broker_name": "36 by hand, to the address that the route gives",
        "send_back_by_store_host": "36 by hand, to the address that the message names",
    },
    "Looking": {
        "trace": "traces of sends and consumptions",
        "query_by_key": "12: by key, and a key that is not there",
        "query_by_unique_key": "12: by the id the client gave",
        "view_by_id": "33: by the id the broker gave",
    },
    "Sending": {
        "send_delay_level": "delivered a second later",
        "send_timer": "delivered by the broker's timer wheel",
        "send_sync": "sync",
        "send_async": "async, all called back",
        "send_oneway": "one-way, all stored",
        "send_batch": "320",
        "send_batch_to_queue": "320 to a queue",
        "send_ordered": "a selector; order kept by queue",
        "send_to_queue": "one queue",
        "send_large": "4 MiB less 1 KiB",
        "send_too_large": "6 MiB: the broker's refusal, and the connection goes on",
        "send_compressed": "a body compressed with zlib",
        "send_properties": "keys, tags, properties beyond ASCII",
        "send_to_new_topic": "created by the first message",
        "send_to_unknown_queue": "the broker's refusal, in its words",
        "send_over_tls": "tls.enable on the port that also takes plain clients; send and consume",
        "send_vip": "the port two below",
    },
    "Naming": {"namespace": "names with a namespace before them"},
    "Plugging": {
        "raw_unknown_code": "a request that the broker does not know",
        "raw_half_close": "shutdown of the writing half after the answer: the broker's close comes back",
        "raw_pipelined": "300 requests in one write, each answered once",
        "raw_answer_nobody_waits_for": "an answer without a request passes",
        "raw_byte_by_byte": "a request in segments of one byte",
    },
    "Signing": {
        "signed": "signed rightly",
        "signed_with_a_wrong_secret": "refused by the broker",
        "signed_by_nobody_known": "refused by the broker",
        "not_signed": "refused by the broker",
    },
}


@dataclass(frozen=True)
class LeftOut:
    """Cases that are not run in some runs; an empty field means all."""

    cases: tuple[str, ...]
    why: str
    client: str = ""
    style: str = ""
    way: str = ""

    def covers(self, case: str, client: str, style: str, way: str) -> bool:
        return case in self.cases and self.client in {"", client} and self.style in {"", style} and self.way in {"", way}


LEFT_OUT: Final = (
    LeftOut(tuple(CASES["Modern"]), "5.x only", client="4"),
    LeftOut(tuple(CASES["Signing"]), "the broker asks for no signature", style=PLAIN),
    LeftOut(tuple(CASES["Signing"]), "the broker asks for no signature", style=BINARY),
    LeftOut(("pop", "pop_again"), "binary headers have 16 bits for the code, and pop's is 200050", style=BINARY),
    LeftOut(("send_vip",), "the gateway opens one port per broker in mode B", way="B"),
)


def left_out(case: str, client: str, style: str, way: str) -> str | None:
    """Why a case is not run there; None where it is."""
    return next((each.why for each in LEFT_OUT if each.covers(case, client, style, way)), None)


def cases(client: str, style: str, way: str) -> list[str]:
    """The cases of a run, in the order in which they are started."""
    names = [case for group in CASES.values() for case in group]
    return [case for case in names if left_out(case, client, style, way) is None]
